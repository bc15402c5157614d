// Movements and reduce: collectives in which a rank gives a part of its buffer to some peers and takes
// from some. The LL engine's lines for small calls, the push engine's rings and flags for the rest.
//
// A rank that only gives ends as soon as its parts are on their way: the gate before the next launch says
// that the takers have left this call, so no inbox or slot is written again before it was read.
#pragma once

#include "gpu/kernel/ll.hpp"
#include "gpu/kernel/push.hpp"

namespace tutti::gpu {

// Whether `from` has a part for `to`, itself or another rank.
template <Coll coll>
TUTTI_KERNEL_FN bool gives(const KernelArgs& a, uint32_t from, uint32_t to) {
  if constexpr (coll == Coll::bcast || coll == Coll::scatter) return from == a.root;
  if constexpr (coll == Coll::gather || coll == Coll::reduce) return to == a.root;
  return true;
}

// The part of this rank's buffer that is for `to`, and the place of what comes from `from`; empty where
// there is none.
template <Coll coll>
TUTTI_KERNEL_FN ConstStretch part_for(const KernelArgs& a, uint32_t to) {
  if (!gives<coll>(a, a.rank, to)) return {nullptr, 0};
  const uint64_t at = coll == Coll::scatter || coll == Coll::alltoall ? to * a.bytes : 0;
  return {a.send + at, a.bytes};
}
template <Coll coll>
TUTTI_KERNEL_FN Stretch place_of(const KernelArgs& a, uint32_t from) {
  if (!gives<coll>(a, from, a.rank)) return {nullptr, 0};
  const uint64_t at = coll == Coll::gather || coll == Coll::alltoall ? from * a.bytes : 0;
  return {a.recv + at, a.bytes};
}

// Whether the own part must be copied: in place it lies where it belongs.
template <Coll coll>
TUTTI_KERNEL_FN bool copies_own(const KernelArgs& a) {
  return coll != Coll::bcast && coll != Coll::reduce && !a.in_place && a.recv != nullptr &&
         gives<coll>(a, a.rank, a.rank);
}

// In place is right (alltoall): a thread loads its unit of all blocks before it stores any.
template <class M, Coll coll>
TUTTI_KERNEL_FN void ll_move(const M& m, const KernelArgs& a) {
  constexpr int words = 3;
  const uint64_t units = (a.bytes + words * 4 - 1) / (words * 4);
  const uint64_t step = static_cast<uint64_t>(m.ctas()) * m.threads();
  bool alive = true;
  TUTTI_NO_UNROLL
  for (uint64_t unit = static_cast<uint64_t>(m.cta()) * m.threads() + m.thread();
       unit < units && alive; unit += step) {
    const uint64_t at = unit * words * 4;
    TUTTI_NO_UNROLL
    for (uint32_t q = 1; q < a.nranks; ++q) {
      const uint32_t peer = rotated(a, q);
      const ConstStretch part = part_for<coll>(a, peer);
      if (part.bytes == 0) continue;
      uint32_t data[words];
      load_words(part.data + at, part.bytes - at, data);
      send_unit(m, a, peer, unit, data);
    }
    if (copies_own<coll>(a)) {
      uint32_t data[words];
      load_words(part_for<coll>(a, a.rank).data + at, a.bytes - at, data);
      store_words(place_of<coll>(a, a.rank).data + at, a.bytes - at, data);
    }
    uint32_t v[max_ranks][words];
    uint32_t epochs[max_ranks][1];
    TUTTI_UNROLL
    for (uint32_t s = 0; s < max_ranks; ++s)
      if (s < a.nranks && s != a.rank && gives<coll>(a, s, a.rank))
        peek_unit(m, inbox(m, a, a.rank, s) + unit, v[s], epochs[s]);
    TUTTI_UNROLL
    for (uint32_t s = 0; s < max_ranks; ++s) {
      if (s >= a.nranks || s == a.rank || !gives<coll>(a, s, a.rank)) continue;
      alive = await_unit(m, a, inbox(m, a, a.rank, s) + unit, v[s], epochs[s]) && alive;
      store_words(place_of<coll>(a, s).data + at, a.bytes - at, v[s]);
    }
  }
  finish(m, a, alive);
}

// Everybody sends its vector to the root, which folds in rank order. A unit is `lines` lines.
template <class M, int lines, int N>
TUTTI_KERNEL_FN void ll_reduce(const M& m, const KernelArgs& a) {
  constexpr int words = 3 * lines;
  const uint64_t units = (a.bytes + words * 4 - 1) / (words * 4);
  const uint64_t step = static_cast<uint64_t>(m.ctas()) * m.threads();
  bool alive = true;
  TUTTI_NO_UNROLL
  for (uint64_t unit = static_cast<uint64_t>(m.cta()) * m.threads() + m.thread();
       unit < units && alive; unit += step) {
    const uint64_t at = unit * words * 4;
    uint32_t own[words];
    load_words(a.send + at, a.bytes - at, own);
    if (a.rank != a.root) {
      send_unit(m, a, a.root, unit, own);
      continue;
    }
    uint32_t v[N][words];
    uint32_t epochs[N][lines];
    TUTTI_UNROLL
    for (int s = 0; s < N; ++s)
      if ((N == 2 || static_cast<uint32_t>(s) < a.nranks) && static_cast<uint32_t>(s) != a.rank)
        peek_unit(m, inbox(m, a, a.rank, s) + unit * lines, v[s], epochs[s]);
    TUTTI_UNROLL
    for (int s = 0; s < N; ++s) {
      if (N != 2 && static_cast<uint32_t>(s) >= a.nranks) continue;
      if (static_cast<uint32_t>(s) == a.rank) {
        TUTTI_UNROLL
        for (int i = 0; i < words; ++i) v[s][i] = own[i];
        continue;
      }
      alive = await_unit(m, a, inbox(m, a, a.rank, s) + unit * lines, v[s], epochs[s]) && alive;
    }
    uint32_t result[words] = {};
    fold_ranks<M>(a.code, v, a.nranks, result);
    store_words(a.recv + at, a.bytes - at, result);
  }
  finish(m, a, alive);
}

// Waits, as one thread, until chunk j from a peer lies in its slot, and, in place, until the own part
// for that peer, which lies where the chunk goes, was read.
template <class M, Coll coll>
TUTTI_KERNEL_FN bool wait_chunk(const M& m, const KernelArgs& a, uint32_t from, uint64_t j) {
  const uint64_t want = a.base + j + 1;
  const auto slot = static_cast<uint32_t>(j % a.slots);
  return wait_flag(m, a, flag_word(m, a, a.rank, Flag::pushed, from, slot), want) &&
         (coll != Coll::alltoall || !a.in_place ||
          wait_flag(m, a, flag_word(m, a, a.rank, Flag::local, from, slot), want));
}

// Pushers and drainers. No deadlock: pushing chunk j waits for the draining of j - slots at the peer,
// draining j waits for the pushing of j here and there.
template <class M, Coll coll>
TUTTI_KERNEL_FN void push_move(const M& m, const KernelArgs& a) {
  bool alive = true;
  if (m.cta() < a.push_ctas) {
    alive = push_role(m, a, a.bytes, [&](uint32_t peer) { return part_for<coll>(a, peer); });
  } else {
    const uint64_t items = (a.bytes + a.chunk - 1) / a.chunk * a.nranks;
    TUTTI_NO_UNROLL
    for (uint64_t k = m.cta() - a.push_ctas; k < items; k += a.drain_ctas) {
      const uint64_t j = k / a.nranks;
      const uint32_t from = rotated(a, static_cast<uint32_t>(k % a.nranks));
      const uint64_t bytes = chunk_bytes(a, a.bytes, j);
      if (!gives<coll>(a, from, a.rank)) continue;
      const Stretch place{place_of<coll>(a, from).data + j * a.chunk, bytes};
      if (from == a.rank) {
        if (!copies_own<coll>(a)) continue;
        const ConstStretch own{part_for<coll>(a, a.rank).data + j * a.chunk, bytes};
        TUTTI_NO_UNROLL
        for (uint64_t i = m.thread(); 16 * i < bytes; i += m.threads())
          store_pack(m, place, i, load_pack(m, own, i));
        continue;
      }
      if (m.thread() == 0) alive = wait_chunk<M, coll>(m, a, from, j);
      alive = m.sync_all(alive);
      if (!alive) break;
      copy_out(m, ring_slot(m, a, a.rank, from, j, 0), place);
      m.sync();
      if (m.thread() == 0) give_credit(m, a, Flag::consumed, from, j, a.bytes);
    }
  }
  finish(m, a, alive);
}

// Pushers everywhere but at the root, reducers there. In place is right without local flags: the root
// pushes nothing, and reads and writes a pack by one thread.
template <class M, int N>
TUTTI_KERNEL_FN void push_reduce(const M& m, const KernelArgs& a) {
  bool alive = true;
  if (m.cta() < a.push_ctas) {
    if (a.rank != a.root)
      alive =
          push_role(m, a, a.bytes, [&](uint32_t peer) { return part_for<Coll::reduce>(a, peer); });
  } else if (a.rank == a.root) {
    const uint64_t chunks = (a.bytes + a.chunk - 1) / a.chunk;
    TUTTI_NO_UNROLL
    for (uint64_t j = m.cta() - a.push_ctas; j < chunks; j += a.reduce_ctas) {
      alive = wait_sources(m, a, j, 0);
      if (!alive) break;
      const uint64_t bytes = chunk_bytes(a, a.bytes, j);
      fold_chunk<M, N>(m, a, ConstStretch{a.send + j * a.chunk, bytes},
                       Stretch{a.recv + j * a.chunk, bytes}, j);
      m.sync();
      for (uint32_t s = m.thread(); s < a.nranks; s += m.threads())
        if (s != a.rank) give_credit(m, a, Flag::consumed, s, j, a.bytes);
    }
  }
  finish(m, a, alive);
}

}  // namespace tutti::gpu
