// Packs a gapped buffer, or unpacks it: teams of threads take strips in turn. No kernel waits for it and
// it waits for none.
#pragma once

#include "core/strips.hpp"
#include "gpu/kernel/machine.hpp"

namespace tutti::gpu {

struct PackArgs {
  char* program;  // the gapped buffer
  char* packed;
  const Strip* strips;
  uint64_t count;
  uint32_t unpack;
};

// One strip, by a team, in words that all its addresses allow. Loads before stores: their latencies
// overlap.
template <class Word>
TUTTI_KERNEL_FN void move_strip(const PackArgs& a, const Strip& s, uint32_t lane, uint32_t team) {
  constexpr uint32_t depth = 4;
  const auto words = static_cast<uint32_t>(s.bytes / sizeof(Word));
  const uint32_t all = words * s.runs;
  Word* packed = reinterpret_cast<Word*>(a.packed + s.packed);
  char* first = a.program + s.offset;
  TUTTI_NO_UNROLL
  for (uint32_t k = lane; k < all; k += depth * team) {
    Word* there[depth];
    Word x[depth];
    TUTTI_UNROLL
    for (uint32_t u = 0; u < depth; ++u) {
      const uint32_t i = k + u * team;
      if (i >= all) continue;
      const uint32_t run = i / words;
      there[u] =
          reinterpret_cast<Word*>(first + static_cast<int64_t>(run) * s.stride) + (i - run * words);
      x[u] = a.unpack ? packed[i] : *there[u];
    }
    TUTTI_UNROLL
    for (uint32_t u = 0; u < depth; ++u) {
      const uint32_t i = k + u * team;
      if (i >= all) continue;
      if (a.unpack)
        *there[u] = x[u];
      else
        packed[i] = x[u];
    }
  }
}

template <class M, uint32_t team>
TUTTI_KERNEL_FN void pack_kernel(const M& m, const PackArgs& a) {
  const uint32_t lane = m.thread() % team;
  const uint64_t teams = static_cast<uint64_t>(m.ctas()) * m.threads() / team;
  uint64_t i = (static_cast<uint64_t>(m.cta()) * m.threads() + m.thread()) / team;
  TUTTI_NO_UNROLL
  for (; i < a.count; i += teams) {
    const Strip s = a.strips[i];
    const uint64_t bits = reinterpret_cast<uint64_t>(a.program) + static_cast<uint64_t>(s.offset);
    const uint64_t odd = bits | (reinterpret_cast<uint64_t>(a.packed) + s.packed) | s.bytes |
                         (s.runs > 1 ? static_cast<uint64_t>(s.stride) : 0);
    if (odd % 16 == 0)
      move_strip<Pack>(a, s, lane, team);
    else if (odd % 8 == 0)
      move_strip<uint64_t>(a, s, lane, team);
    else if (odd % 4 == 0)
      move_strip<uint32_t>(a, s, lane, team);
    else if (odd % 2 == 0)
      move_strip<uint16_t>(a, s, lane, team);
    else
      move_strip<uint8_t>(a, s, lane, team);
  }
}

}  // namespace tutti::gpu
