// Shapes that algorithms share: powers, block ranges, trees, folds. Mathematics only.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "sched/contract.hpp"
#include "sched/schedule.hpp"
#include "sched/step.hpp"

namespace tutti {

using Id = ScheduleBuilder::Id;
inline constexpr Id no_step = ScheduleBuilder::none;

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
constexpr uint64_t ceil_div(uint64_t a, uint64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

// Part `i` of `n` elements cut into `parts` almost equal ranges: the first n % parts are one
// longer.
constexpr Block part(uint64_t n, int parts, int i) {
  uint64_t p = static_cast<uint64_t>(parts), k = static_cast<uint64_t>(i);
  uint64_t base = n / p, longer = n % p;
  return {k * base + std::min(k, longer), base + (k < longer ? 1 : 0)};
}
inline std::vector<Block> parts(uint64_t n, int count) {
  std::vector<Block> all(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) all[static_cast<size_t>(i)] = part(n, count, i);
  return all;
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
// Piece `i` of a range cut every `piece` elements; empty beyond its end.
constexpr Ref cut(Ref whole, uint64_t piece, uint64_t i) {
  uint64_t begin = std::min(i * piece, whole.count);
  return slice(whole, begin, std::min(piece, whole.count - begin));
}

// The vector that this rank contributes to a reduction, wherever it lies.
constexpr Ref own_vector(bool in_place, uint64_t count) {
  return {in_place ? Space::output : Space::input, 0, count};
}

// How ranges are cut for a pipeline: `chunk_bytes` each, but at most `most` pieces.
struct Pieces {
  uint64_t size = 1;  // elements
  uint64_t count = 1;
};
constexpr Pieces pieces(uint64_t n, uint64_t chunk_bytes, uint64_t extent, uint64_t most) {
  Pieces cut;
  cut.size = std::max<uint64_t>(1, chunk_bytes / extent);
  if (ceil_div(n, cut.size) > most) cut.size = ceil_div(n, most);
  cut.count = std::max<uint64_t>(1, ceil_div(n, cut.size));
  return cut;
}

// An uneven number of ranks folded to a power of two: the first `extra` pairs (0,1), (2,3), ... act
// as one. `active` numbers pairs, then singles, so runs of active ranks are runs of ranks.
struct Fold {
  explicit constexpr Fold(int nranks)
      : nranks(nranks), power(floor_power2(nranks)), extra(nranks - power) {}
  int nranks, power, extra;
  constexpr bool folded(int rank) const { return rank < 2 * extra; }
  // The second of a pair waits while the first acts for both.
  constexpr bool idle(int rank) const { return folded(rank) && rank % 2 == 1; }
  constexpr int active_of(int rank) const { return folded(rank) ? rank / 2 : rank - extra; }
  constexpr int rank_of(int active) const { return active < extra ? 2 * active : active + extra; }
  // First rank of the run that starts with `active`.
  constexpr int begin_of(int active) const { return rank_of(active); }
};

// k-nomial tree over v = 0..n-1 with root 0: the subtree of v is [v, v + span).
struct KnomialTree {
  struct Child {
    int v, span;  // clipped to n
  };
  int parent = -1;
  int span = 1;                 // of v itself, clipped to n
  std::vector<Child> children;  // ascending: neighbouring runs that follow v

  KnomialTree(int v, int n, int radix) {
    int64_t mask = 1, k = radix;
    for (; mask < n && v % (mask * k) == 0; mask *= k)
      for (int64_t j = 1; j < k && v + j * mask < n; ++j)
        children.push_back({static_cast<int>(v + j * mask),
                            static_cast<int>(std::min<int64_t>(mask, n - (v + j * mask)))});
    if (mask < n) parent = static_cast<int>(v - v % (mask * k));
    span = static_cast<int>(std::min<int64_t>(mask, n - v));
  }
};

// Binary search tree over positions 0..n-1: every subtree is a run, left of it lies lower. Even
// positions are leaves (Sanders, Speck, Traeff 2009).
struct InorderTree {
  int parent = -1, left = -1, right = -1;
  int first, last;  // run of the subtree

  InorderTree(int position, int n) {
    const int i = position + 1, low = i & -i;
    first = position - (low - 1);
    last = std::min(position + (low - 1), n - 1);
    if (low > 1) left = i - low / 2 - 1;
    for (int half = low / 2; half > 0 && right < 0; half /= 2)
      if (i + half <= n) right = i + half - 1;
    if (i == floor_power2(n)) return;
    // Up: clear the lowest bit and set the next, until that node exists.
    for (int node = i, bit = low;; bit = node & -node) {
      node = (node & ~bit) | (bit << 1);
      if (node <= n) {
        parent = node - 1;
        break;
      }
    }
  }
};

}  // namespace tutti
