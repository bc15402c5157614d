// Loads and stores of user memory at any byte address.
//
// User buffers need no alignment, and the wire format must not depend on it: lanes hold the bytes
// of the vector in order, always aligned; each rank brings its own buffer into line while it loads
// or stores. The wide accesses are taken whenever the address allows.
#pragma once

#include "gpu/kernel/machine.hpp"

namespace tutti::gpu {

TUTTI_KERNEL_FN uint64_t address(const void* p) {
  return reinterpret_cast<uint64_t>(p);
}

// One word by bytes, of which only `valid` may be touched; the rest reads as zero. Loops, not
// unrolled: the rare way shall be small. (As calls they cost 0.3 us a launch from 4 KiB up.)
TUTTI_KERNEL_FN uint32_t load_word_slow(const char* p, uint64_t valid) {
  uint32_t word = 0;
  TUTTI_NO_UNROLL
  for (uint32_t b = 0; b < 4 && b < valid; ++b)
    word |= static_cast<uint32_t>(static_cast<uint8_t>(p[b])) << (8 * b);
  return word;
}
TUTTI_KERNEL_FN void store_word_slow(char* p, uint64_t valid, uint32_t word) {
  TUTTI_NO_UNROLL
  for (uint32_t b = 0; b < 4 && b < valid; ++b) p[b] = static_cast<char>(word >> (8 * b));
}

// Words * 4 bytes at `p`, of which only `valid` may be touched; the rest reads as zero.
template <int Words>
TUTTI_KERNEL_FN void load_words(const char* p, uint64_t valid, uint32_t (&out)[Words]) {
  if (valid >= Words * 4 && address(p) % 4 == 0) {
    TUTTI_UNROLL
    for (int i = 0; i < Words; ++i) out[i] = reinterpret_cast<const uint32_t*>(p)[i];
    return;
  }
  TUTTI_UNROLL
  for (uint64_t i = 0; i < Words; ++i)
    out[i] = load_word_slow(p + 4 * i, valid > 4 * i ? valid - 4 * i : 0);
}

template <int Words>
TUTTI_KERNEL_FN void store_words(char* p, uint64_t valid, const uint32_t (&in)[Words]) {
  if (valid >= Words * 4 && address(p) % 4 == 0) {
    TUTTI_UNROLL
    for (int i = 0; i < Words; ++i) reinterpret_cast<uint32_t*>(p)[i] = in[i];
    return;
  }
  TUTTI_UNROLL
  for (uint64_t i = 0; i < Words; ++i)
    store_word_slow(p + 4 * i, valid > 4 * i ? valid - 4 * i : 0, in[i]);
}

// The slow ways of a pack, out of line so that they cost the fast loops no registers.
TUTTI_KERNEL_COLD Pack load_pack_slow(const char* p, uint64_t valid) {
  Pack pack;
  load_words(p, valid, pack.w);
  return pack;
}
TUTTI_KERNEL_COLD void store_pack_slow(char* p, uint64_t valid, Pack pack) {
  store_words(p, valid, pack.w);
}

// A stretch of user memory, seen as packs: pack i holds bytes 16 i .. 16 i + 15 of it.
struct ConstStretch {
  const char* data;
  uint64_t bytes;
};
struct Stretch {
  char* data;
  uint64_t bytes;
};

template <class M>
TUTTI_KERNEL_FN Pack load_pack(const M& m, const ConstStretch& s, uint64_t i) {
  const char* p = s.data + 16 * i;
  if (address(p) % 16 == 0 && 16 * i + 16 <= s.bytes)
    return m.load_send(reinterpret_cast<const Pack*>(p));
  return load_pack_slow(p, s.bytes - 16 * i);
}

template <class M>
TUTTI_KERNEL_FN void store_pack(const M& m, const Stretch& s, uint64_t i, Pack pack) {
  char* p = s.data + 16 * i;
  if (address(p) % 16 == 0 && 16 * i + 16 <= s.bytes)
    m.store(reinterpret_cast<Pack*>(p), pack);
  else
    store_pack_slow(p, s.bytes - 16 * i, pack);
}

}  // namespace tutti::gpu
