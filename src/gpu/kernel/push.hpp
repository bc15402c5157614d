// Push engine: large messages through a ring of chunk slots in the peers' lanes.
//
// The CTAs of a kernel have roles, by index: pushers copy chunks of the user's buffer into the
// peers' rings, reducers fold what arrived with the own part, drainers copy finished chunks out.
// Apart, because a CTA that does both halves leaves the link idle while it reduces (gpu-lab: 3-8 %
// from 8 MiB up).
//
// For every chunk j of a source: data, then `fence; flag = base + j + 1` at the receiver; the
// reader hands the slot back by a credit `base + j + 1`. Credits are given only where the same call
// waits for them, so nothing of a call arrives after its end. The board's gate before the launch
// says that all members left the call before: every slot is free at entry.
//
// No deadlock: each role walks its chunks in order; pushing j waits for the reading of j - slots,
// reducing j waits for the pushes of j (and draining of j - slots), draining waits for reducing.
// All CTAs of the kernel must be resident together; the host sizes the grid for that.
#pragma once

#include "gpu/kernel/bytes.hpp"
#include "gpu/kernel/reduce.hpp"

namespace tutti::gpu {

TUTTI_KERNEL_FN uint64_t smaller(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

// Bytes of chunk j of a part; 0 past its end.
TUTTI_KERNEL_FN uint64_t chunk_bytes(const KernelArgs& a, uint64_t part_bytes, uint64_t j) {
  uint64_t at = j * a.chunk;
  return at >= part_bytes ? 0 : smaller(a.chunk, part_bytes - at);
}

TUTTI_KERNEL_FN uint32_t rotated(const KernelArgs& a, uint32_t q) {
  return a.rank + q < a.nranks ? a.rank + q : a.rank + q - a.nranks;
}

// Slot of chunk j in the ring that `owner` keeps for `source`. Rings of the spread phase of a
// two-shot lie behind those of the push phase.
template <class M>
TUTTI_KERNEL_FN Pack* ring_slot(const M&, const KernelArgs& a, uint32_t owner, uint32_t source,
                                uint64_t j, uint32_t phase) {
  uint64_t ring = source_index(owner, source) + phase * (a.nranks - 1);
  return reinterpret_cast<Pack*>(a.lane[owner] + a.layout.ring_offset + ring * a.ring_bytes +
                                 (j % a.slots) * a.chunk);
}

// Waits, as one thread, until the slot of chunk j may be overwritten.
template <class M>
TUTTI_KERNEL_FN bool wait_credit(const M& m, const KernelArgs& a, Flag table, uint32_t peer,
                                 uint64_t j) {
  if (j < a.slots) return true;
  return wait_flag(m, a, flag_word(m, a, a.rank, table, peer, j % a.slots),
                   a.base + j - a.slots + 1);
}

// Hands a slot back, after the CTA has read it, if this call will wait for it.
template <class M>
TUTTI_KERNEL_FN void give_credit(const M& m, const KernelArgs& a, Flag table, uint32_t peer,
                                 uint64_t j, uint64_t part_bytes) {
  if (chunk_bytes(a, part_bytes, j + a.slots) == 0) return;
  m.store_release(flag_word(m, a, peer, table, a.rank, j % a.slots), a.base + j + 1);
}

// Copies a chunk between user memory and a ring, by the whole CTA.
template <class M>
TUTTI_KERNEL_FN void copy_in(const M& m, const ConstStretch& from, Pack* to) {
  constexpr int depth = 8;
  const uint32_t t = m.threads();
  uint64_t whole = address(from.data) % 16 == 0 ? from.bytes / 16 : 0;
  const Pack* source = reinterpret_cast<const Pack*>(from.data);
  uint64_t i = m.thread();
  TUTTI_NO_UNROLL
  for (; i + (depth - 1) * t < whole; i += depth * t) {
    Pack x[depth];
    TUTTI_UNROLL
    for (int u = 0; u < depth; ++u) x[u] = m.load_send(source + i + u * t);
    TUTTI_UNROLL
    for (int u = 0; u < depth; ++u) m.store(to + i + u * t, x[u]);
  }
  TUTTI_NO_UNROLL
  for (; i < whole; i += t) m.store(to + i, m.load_send(source + i));
  TUTTI_NO_UNROLL
  for (i = whole + m.thread(); 16 * i < from.bytes; i += t)
    m.store(to + i, load_pack_slow(from.data + 16 * i, from.bytes - 16 * i));
}

template <class M>
TUTTI_KERNEL_FN void copy_out(const M& m, const Pack* from, const Stretch& to) {
  constexpr int depth = 4;
  const uint32_t t = m.threads();
  uint64_t whole = address(to.data) % 16 == 0 ? to.bytes / 16 : 0;
  Pack* target = reinterpret_cast<Pack*>(to.data);
  uint64_t i = m.thread();
  TUTTI_NO_UNROLL
  for (; i + (depth - 1) * t < whole; i += depth * t) {
    Pack x[depth];
    TUTTI_UNROLL
    for (int u = 0; u < depth; ++u) x[u] = m.load_lane(from + i + u * t);
    TUTTI_UNROLL
    for (int u = 0; u < depth; ++u) m.store(target + i + u * t, x[u]);
  }
  TUTTI_NO_UNROLL
  for (; i < whole; i += t) m.store(target + i, m.load_lane(from + i));
  TUTTI_NO_UNROLL
  for (i = whole + m.thread(); 16 * i < to.bytes; i += t)
    store_pack_slow(to.data + 16 * i, to.bytes - 16 * i, m.load_lane(from + i));
}

// Pushes one part to each peer. Item k of the CTA's walk is chunk k / (n - 1) for the peer at
// rotation k % (n - 1) + 1. `part(peer)` names the stretch.
template <class M, class Part>
TUTTI_KERNEL_FN bool push_role(const M& m, const KernelArgs& a, uint64_t longest,
                               const Part& part) {
  const uint32_t peers = a.nranks - 1;
  const uint64_t items = (longest + a.chunk - 1) / a.chunk * peers;
  bool alive = true;
  TUTTI_NO_UNROLL
  for (uint64_t k = m.cta(); k < items && alive; k += a.push_ctas) {
    const uint64_t j = k / peers;
    const uint32_t peer = rotated(a, static_cast<uint32_t>(k % peers) + 1);
    const ConstStretch whole = part(peer);
    const uint64_t bytes = chunk_bytes(a, whole.bytes, j);
    if (bytes == 0) continue;
    if (m.thread() == 0) alive = wait_credit(m, a, Flag::consumed, peer, j);
    if (j >= a.slots) alive = m.sync_all(alive);
    if (!alive) break;
    copy_in(m, ConstStretch{whole.data + j * a.chunk, bytes}, ring_slot(m, a, peer, a.rank, j, 0));
    m.sync();
    if (m.thread() == 0) {
      // One fence for the CTA's stores, then the flag: cheaper than a release by every thread.
      m.fence_system();
      m.store_relaxed(flag_word(m, a, peer, Flag::pushed, a.rank, j % a.slots), a.base + j + 1);
      if (a.in_place)
        m.store_relaxed(flag_word(m, a, a.rank, Flag::local, peer, j % a.slots), a.base + j + 1);
    }
  }
  return alive;
}

// Waits, by one thread a source, until chunk j has arrived from everybody, and, where the result
// overwrites what is pushed, until the own pushers have read it.
template <class M>
TUTTI_KERNEL_FN bool wait_sources(const M& m, const KernelArgs& a, uint64_t j,
                                  uint64_t pushed_bytes) {
  const uint32_t t = m.thread();
  const uint64_t want = a.base + j + 1;
  bool alive = true;
  for (uint32_t s = t; s < 2 * max_ranks; s += m.threads()) {
    const uint32_t peer = s % max_ranks;
    if (peer >= a.nranks || peer == a.rank) continue;
    if (s < max_ranks)
      alive =
          wait_flag(m, a, flag_word(m, a, a.rank, Flag::pushed, peer, j % a.slots), want) && alive;
    else if (a.in_place && chunk_bytes(a, pushed_bytes, j) != 0)
      alive =
          wait_flag(m, a, flag_word(m, a, a.rank, Flag::local, peer, j % a.slots), want) && alive;
  }
  return m.sync_all(alive);
}

// Where chunk j of every other rank lies in the own lane.
template <int N>
struct Sources {
  const Pack* ring[N];
};

template <class M, int N>
TUTTI_KERNEL_FN Sources<N> sources_of(const M& m, const KernelArgs& a, uint64_t j) {
  Sources<N> from;
  TUTTI_UNROLL
  for (int s = 0; s < N; ++s)
    from.ring[s] = static_cast<uint32_t>(s) < a.nranks && static_cast<uint32_t>(s) != a.rank
                       ? ring_slot(m, a, a.rank, s, j, 0)
                       : nullptr;
  return from;
}

// Folds pack i of all ranks: `own` at this rank's place, the rings at the others'.
template <class M, int N>
TUTTI_KERNEL_FN Pack fold_pack(const M& m, const KernelArgs& a, const Sources<N>& from, Pack own,
                               uint64_t i) {
  uint32_t v[N][4];
  TUTTI_UNROLL
  for (int s = 0; s < N; ++s) {
    if (N != 2 && static_cast<uint32_t>(s) >= a.nranks) continue;
    Pack x = own;
    if (static_cast<uint32_t>(s) != a.rank) x = m.load_lane(from.ring[s] + i);
    TUTTI_UNROLL
    for (int w = 0; w < 4; ++w) v[s][w] = x.w[w];
  }
  Pack result;
  fold_ranks<M>(a.code, v, a.nranks, result.w);
  return result;
}

// Two ranks, aligned: four packs a thread in flight and one switch for the batch.
template <class M>
TUTTI_KERNEL_FN uint64_t fold_pairs_fast(const M& m, const KernelArgs& a, const Pack* own,
                                         Pack* out, uint64_t j, uint64_t whole) {
  constexpr int depth = 4;
  const uint32_t t = m.threads();
  const Pack* in = ring_slot(m, a, a.rank, 1 - a.rank, j, 0);
  uint64_t i = m.thread();
  TUTTI_NO_UNROLL
  for (; i + (depth - 1) * t < whole; i += depth * t) {
    uint32_t v[2][4 * depth];
    TUTTI_UNROLL
    for (int u = 0; u < depth; ++u) {
      Pack mine = m.load_send(own + i + u * t);
      Pack theirs = m.load_lane(in + i + u * t);
      TUTTI_UNROLL
      for (int w = 0; w < 4; ++w) {
        v[0][4 * u + w] = a.rank == 0 ? mine.w[w] : theirs.w[w];
        v[1][4 * u + w] = a.rank == 0 ? theirs.w[w] : mine.w[w];
      }
    }
    uint32_t result[4 * depth];
    fold_ranks<M>(a.code, v, 2, result);
    TUTTI_UNROLL
    for (int u = 0; u < depth; ++u)
      m.store(out + i + u * t,
              Pack{{result[4 * u], result[4 * u + 1], result[4 * u + 2], result[4 * u + 3]}});
  }
  return i;
}

// recv = fold over ranks of chunk j, by the whole CTA.
template <class M, int N>
TUTTI_KERNEL_FN void fold_chunk(const M& m, const KernelArgs& a, const ConstStretch& own,
                                const Stretch& out, uint64_t j) {
  const uint32_t t = m.threads();
  uint64_t i = m.thread();
  if (N == 2 && (address(own.data) | address(out.data)) % 16 == 0)
    i = fold_pairs_fast(m, a, reinterpret_cast<const Pack*>(own.data),
                        reinterpret_cast<Pack*>(out.data), j, own.bytes / 16);
  const Sources<N> from = sources_of<M, N>(m, a, j);
  TUTTI_NO_UNROLL
  for (; 16 * i < own.bytes; i += t)
    store_pack(m, out, i, fold_pack<M, N>(m, a, from, load_pack(m, own, i), i));
}

// Allreduce in one shot (two ranks: every rank's whole vector to the other) and
// reduce_scatter_block: pushers and reducers.
template <class M, int N>
TUTTI_KERNEL_FN void push_exchange(const M& m, const KernelArgs& a) {
  // slice = 0: the same vector goes to everybody (allreduce); else block p goes to rank p.
  bool alive = true;
  if (m.cta() < a.push_ctas) {
    alive = push_role(m, a, a.bytes, [&](uint32_t peer) {
      return ConstStretch{a.send + peer * a.slice, a.bytes};
    });
  } else {
    const uint64_t chunks = (a.bytes + a.chunk - 1) / a.chunk;
    TUTTI_NO_UNROLL
    for (uint64_t j = m.cta() - a.push_ctas; j < chunks; j += a.reduce_ctas) {
      alive = wait_sources(m, a, j, a.bytes);
      if (!alive) break;
      const uint64_t bytes = chunk_bytes(a, a.bytes, j);
      fold_chunk<M, N>(m, a, ConstStretch{a.send + a.rank * a.slice + j * a.chunk, bytes},
                       Stretch{a.recv + j * a.chunk, bytes}, j);
      m.sync();
      for (uint32_t s = m.thread(); s < a.nranks; s += m.threads())
        if (s != a.rank) give_credit(m, a, Flag::consumed, s, j, a.bytes);
    }
  }
  finish(m, a, alive);
}

// Stores a finished chunk into every peer's spread ring and the own result. `value(i)` makes pack
// i.
template <class M, class Value>
TUTTI_KERNEL_FN void spread_chunk(const M& m, const KernelArgs& a, uint64_t j, uint32_t phase,
                                  const Stretch& out, const Value& value) {
  Pack* to[max_ranks - 1];
  TUTTI_UNROLL
  for (uint32_t q = 1; q < max_ranks; ++q)
    to[q - 1] = q < a.nranks ? ring_slot(m, a, rotated(a, q), a.rank, j, phase) : nullptr;
  TUTTI_NO_UNROLL
  for (uint64_t i = m.thread(); 16 * i < out.bytes; i += m.threads()) {
    Pack x = value(i);
    TUTTI_UNROLL
    for (uint32_t q = 0; q < max_ranks - 1; ++q)
      if (q + 1 < a.nranks) m.store(to[q] + i, x);
    store_pack(m, out, i, x);
  }
}

// After the CTA has stored chunk j everywhere: says so to all peers.
template <class M>
TUTTI_KERNEL_FN void announce_spread(const M& m, const KernelArgs& a, uint64_t j) {
  m.sync();
  if (m.thread() != 0) return;
  m.fence_system();
  for (uint32_t q = 1; q < a.nranks; ++q)
    m.store_relaxed(flag_word(m, a, rotated(a, q), Flag::spread, a.rank, j % a.slots),
                    a.base + j + 1);
}

template <class M>
TUTTI_KERNEL_FN bool wait_drained(const M& m, const KernelArgs& a, uint64_t j) {
  if (j < a.slots) return true;
  bool alive = true;
  for (uint32_t s = m.thread(); s < a.nranks; s += m.threads())
    if (s != a.rank) alive = wait_credit(m, a, Flag::drained, s, j) && alive;
  return m.sync_all(alive);
}

// Copies the chunks that owners spread into the own result. `first` is the first drainer CTA.
template <class M, class Part>
TUTTI_KERNEL_FN bool drain_role(const M& m, const KernelArgs& a, uint32_t first, uint32_t phase,
                                uint64_t longest, const Part& part) {
  const uint32_t peers = a.nranks - 1;
  const uint64_t items = (longest + a.chunk - 1) / a.chunk * peers;
  TUTTI_NO_UNROLL
  for (uint64_t k = m.cta() - first; k < items; k += a.drain_ctas) {
    const uint64_t j = k / peers;
    const uint32_t owner = rotated(a, static_cast<uint32_t>(k % peers) + 1);
    const Stretch whole = part(owner);
    const uint64_t bytes = chunk_bytes(a, whole.bytes, j);
    if (bytes == 0) continue;
    bool alive = true;
    if (m.thread() == 0)
      alive = wait_flag(m, a, flag_word(m, a, a.rank, Flag::spread, owner, j % a.slots),
                        a.base + j + 1);
    if (!m.sync_all(alive)) return false;
    copy_out(m, ring_slot(m, a, a.rank, owner, j, phase), Stretch{whole.data + j * a.chunk, bytes});
    m.sync();
    if (m.thread() == 0) give_credit(m, a, Flag::drained, owner, j, whole.bytes);
  }
  return true;
}

// Allreduce of three and more ranks: rank r owns slice r. Everybody pushes its part of slice r to
// r; r folds and spreads the result (2 (n - 1) / n of the vector over each port and direction).
//
// In place is right without local flags: slice p of this rank is overwritten by its drainer, after
// p spread the result, after p saw this rank's push of that chunk; the own slice is read and
// written pack by pack by one thread.
template <class M>
TUTTI_KERNEL_FN void push_two_shot(const M& m, const KernelArgs& a) {
  const auto slice_bytes = [&](uint32_t rank) -> uint64_t {
    const uint64_t at = rank * a.slice;
    return at >= a.bytes ? 0 : smaller(a.slice, a.bytes - at);
  };
  const uint32_t drain_first = a.push_ctas + a.reduce_ctas;
  bool alive = true;
  if (m.cta() < a.push_ctas) {
    alive = push_role(m, a, a.slice, [&](uint32_t peer) {
      return ConstStretch{a.send + peer * a.slice, slice_bytes(peer)};
    });
  } else if (m.cta() < drain_first) {
    const uint64_t own_bytes = slice_bytes(a.rank);
    const uint64_t own_at = a.rank * a.slice;
    const uint64_t chunks = (own_bytes + a.chunk - 1) / a.chunk;
    TUTTI_NO_UNROLL
    for (uint64_t j = m.cta() - a.push_ctas; j < chunks && alive; j += a.reduce_ctas) {
      alive = wait_sources(m, a, j, 0) && wait_drained(m, a, j);
      if (!alive) break;
      const uint64_t bytes = chunk_bytes(a, own_bytes, j);
      const ConstStretch own{a.send + own_at + j * a.chunk, bytes};
      const Sources<max_ranks> from = sources_of<M, max_ranks>(m, a, j);
      spread_chunk(m, a, j, 1, Stretch{a.recv + own_at + j * a.chunk, bytes}, [&](uint64_t i) {
        return fold_pack<M, max_ranks>(m, a, from, load_pack(m, own, i), i);
      });
      announce_spread(m, a, j);
      for (uint32_t s = m.thread(); s < a.nranks; s += m.threads())
        if (s != a.rank) give_credit(m, a, Flag::consumed, s, j, own_bytes);
    }
  } else {
    alive = drain_role(m, a, drain_first, 1, a.slice, [&](uint32_t owner) {
      return Stretch{a.recv + owner * a.slice, slice_bytes(owner)};
    });
  }
  finish(m, a, alive);
}

// Allgather: spreaders store the own block into every peer's ring and the own result, drainers copy
// out.
template <class M>
TUTTI_KERNEL_FN void push_allgather(const M& m, const KernelArgs& a) {
  const uint64_t chunks = (a.bytes + a.chunk - 1) / a.chunk;
  bool alive = true;
  if (m.cta() < a.push_ctas) {
    char* own_block = a.recv + a.rank * a.bytes;
    TUTTI_NO_UNROLL
    for (uint64_t j = m.cta(); j < chunks && alive; j += a.push_ctas) {
      alive = wait_drained(m, a, j);
      if (!alive) break;
      const uint64_t bytes = chunk_bytes(a, a.bytes, j);
      const ConstStretch own{a.send + j * a.chunk, bytes};
      spread_chunk(m, a, j, 0, Stretch{own_block + j * a.chunk, bytes},
                   [&](uint64_t i) { return load_pack(m, own, i); });
      announce_spread(m, a, j);
    }
  } else {
    alive = drain_role(m, a, a.push_ctas, 0, a.bytes, [&](uint32_t owner) {
      return Stretch{a.recv + owner * a.bytes, a.bytes};
    });
  }
  finish(m, a, alive);
}

}  // namespace tutti::gpu
