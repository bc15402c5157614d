// The 64-bit match word of UCX: [code 4][key 14][sender 18][tag 28], from the top.
//
// Receives ignore the code: a message with one is an error in place of a message. The key tells
// the receiver's communicators apart, the sender the ranks of one.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "pml/network.hpp"

namespace tutti::ucx {

inline constexpr int sender_shift = Transport::tag_bits;
inline constexpr int key_shift = sender_shift + 18;
inline constexpr int code_shift = key_shift + 14;
static_assert(code_shift == 60);
static_assert(net::max_ranks == 1 << (key_shift - sender_shift));
static_assert(net::max_key == (1u << (code_shift - key_shift)) - 1);
// The last code must fit.
static_assert(static_cast<unsigned>(Code::internal) < 16);

inline constexpr uint64_t tag_mask = (uint64_t{1} << Transport::tag_bits) - 1;
inline constexpr uint64_t match_mask = (uint64_t{1} << code_shift) - 1;
inline constexpr uint64_t sender_mask = ((uint64_t{1} << 32) - 1) << sender_shift;

constexpr uint64_t match_word(uint32_t key, int sender, uint64_t tag, Code code = Code::ok) {
  return uint64_t{static_cast<uint32_t>(code)} << code_shift | uint64_t{key} << key_shift |
         uint64_t{static_cast<uint32_t>(sender)} << sender_shift | (tag & tag_mask);
}
constexpr Code code_of(uint64_t word) {
  return static_cast<Code>(word >> code_shift);
}

}  // namespace tutti::ucx
