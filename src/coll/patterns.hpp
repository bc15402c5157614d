// Shapes that algorithms share: powers of two, block ranges, the rank's own part. Mathematics only.
#pragma once

#include <bit>
#include <cstdint>

#include "sched/contract.hpp"
#include "sched/step.hpp"

namespace tutti {

// Largest power of two that is not above n >= 1.
constexpr int floor_power2(int n) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
}
// Smallest k with 2^k >= n >= 1.
constexpr int ceil_log2(int n) {
  return std::bit_width(static_cast<unsigned>(n - 1));
}
constexpr int mod(int a, int n) {
  int r = a % n;
  return r < 0 ? r + n : r;
}

// Part `i` of `n` elements cut into `parts` almost equal ranges: the first n % parts are one
// longer.
constexpr Block part(uint64_t n, int parts, int i) {
  uint64_t p = static_cast<uint64_t>(parts), k = static_cast<uint64_t>(i);
  uint64_t base = n / p, longer = n % p;
  return {k * base + (k < longer ? k : longer), base + (k < longer ? 1 : 0)};
}

constexpr Ref input_ref(uint64_t offset, uint64_t count) {
  return {Space::input, offset, count};
}
constexpr Ref output_ref(uint64_t offset, uint64_t count) {
  return {Space::output, offset, count};
}
// Elements [offset, offset + count) of a range.
constexpr Ref slice(Ref whole, uint64_t offset, uint64_t count) {
  return {whole.space, whole.offset + offset, count};
}
constexpr Ref slice(Ref whole, Block block) {
  return slice(whole, block.offset, block.count);
}

// The vector that this rank contributes to a reduction, wherever it lies.
constexpr Ref own_vector(bool in_place, uint64_t count) {
  return {in_place ? Space::output : Space::input, 0, count};
}

}  // namespace tutti
