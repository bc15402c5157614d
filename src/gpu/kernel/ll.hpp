// LL engine: small messages in one pass, without a barrier.
//
// Every line of 16 bytes carries 12 bytes of data and the call's epoch, and is written and read by
// one 128-bit access; a reader knows a line is there when it shows this call's epoch. (PTX
// specifies scalar .b128 accesses; gpu-lab's tear test saw no torn line in 2e11.) The scheme is
// NCCL's LL with a wider line. Inboxes alternate by the epoch's parity: a rank that has finished
// call e has had data from all others in e, so all of them have left call e - 1 and nobody reads
// the other parity.
//
// CTA i of a rank waits only for CTA i of its peers, so any resident prefix of a grid makes
// progress.
#pragma once

#include "core/types.hpp"
#include "gpu/kernel/bytes.hpp"
#include "gpu/kernel/reduce.hpp"

namespace tutti::gpu {

struct LlShape {
  Coll coll;
  int lines;  // a unit: 12 bytes each; two hold three 8-byte elements
  int max_ranks;
  int depth;  // units in flight a thread
};

template <class M>
TUTTI_KERNEL_FN Pack* inbox(const M&, const KernelArgs& a, uint32_t owner, uint32_t source) {
  uint64_t index = (a.epoch & 1) * (a.nranks - 1) + source_index(owner, source);
  return reinterpret_cast<Pack*>(a.lane[owner] + a.layout.ll_offset +
                                 index * a.layout.ll_inbox_bytes);
}

template <class M, int Words>
TUTTI_KERNEL_FN void send_unit(const M& m, const KernelArgs& a, uint32_t peer, uint64_t unit,
                               const uint32_t (&data)[Words]) {
  constexpr int lines = Words / 3;
  Pack* to = inbox(m, a, peer, a.rank) + unit * lines;
  TUTTI_UNROLL
  for (int l = 0; l < lines; ++l)
    m.store_line(to + l, Pack{{data[3 * l], data[3 * l + 1], data[3 * l + 2], a.epoch}});
}

// First look at a unit; await_unit looks again until it is whole.
template <class M, int Words>
TUTTI_KERNEL_FN void peek_unit(const M& m, const Pack* from, uint32_t (&data)[Words],
                               uint32_t (&epochs)[Words / 3]) {
  TUTTI_UNROLL
  for (int l = 0; l < Words / 3; ++l) {
    Pack line = m.load_line(from + l);
    data[3 * l] = line.w[0];
    data[3 * l + 1] = line.w[1];
    data[3 * l + 2] = line.w[2];
    epochs[l] = line.w[3];
  }
}

template <class M, int Words>
TUTTI_KERNEL_FN bool await_unit(const M& m, const KernelArgs& a, const Pack* from,
                                uint32_t (&data)[Words], uint32_t (&epochs)[Words / 3]) {
  bool alive = true;
  TUTTI_UNROLL
  for (int l = 0; l < Words / 3; ++l) {
    for (uint32_t turn = 1; epochs[l] != a.epoch; ++turn) {
      m.spin();
      Pack line = m.load_line(from + l);
      data[3 * l] = line.w[0];
      data[3 * l + 1] = line.w[1];
      data[3 * l + 2] = line.w[2];
      epochs[l] = line.w[3];
      if (turn % turns_between_abort_checks == 0 && aborted(m, a)) {
        alive = false;
        break;
      }
    }
  }
  return alive;
}

// Where this rank's part of the vector for `peer` begins.
template <Coll coll>
TUTTI_KERNEL_FN const char* ll_part(const KernelArgs& a, uint32_t peer) {
  if constexpr (coll == Coll::reduce_scatter_block) return a.send + peer * a.bytes;
  return a.send;
}

// Loads this rank's units and sends them out; keeps in `own` what it contributes to its own result.
template <class M, LlShape shape>
TUTTI_KERNEL_FN void ll_push(const M& m, const KernelArgs& a, uint64_t unit,
                             uint32_t (&own)[shape.lines * 3]) {
  constexpr int words = shape.lines * 3;
  uint64_t at = unit * words * 4;
  load_words(ll_part<shape.coll>(a, a.rank) + at, a.bytes - at, own);
  // Peers are served in rotated order, so that no inbox is hit by all at once.
  TUTTI_UNROLL
  for (int q = 1; q < shape.max_ranks; ++q) {
    if (shape.max_ranks != 2 && static_cast<uint32_t>(q) >= a.nranks) continue;
    uint32_t peer = a.rank + q < a.nranks ? a.rank + q : a.rank + q - a.nranks;
    if constexpr (shape.coll == Coll::reduce_scatter_block) {
      uint32_t data[words];
      load_words(ll_part<shape.coll>(a, peer) + at, a.bytes - at, data);
      send_unit(m, a, peer, unit, data);
    } else {
      send_unit(m, a, peer, unit, own);
    }
  }
}

// Reduces the operands of one unit, or lays them side by side (allgather).
template <class M, LlShape shape>
TUTTI_KERNEL_FN void ll_store(const M&, const KernelArgs& a, uint64_t unit,
                              const uint32_t (&v)[shape.max_ranks][shape.lines * 3]) {
  constexpr int words = shape.lines * 3;
  uint64_t at = unit * words * 4;
  if constexpr (shape.coll == Coll::allgather) {
    TUTTI_UNROLL
    for (int s = 0; s < shape.max_ranks; ++s)
      if (shape.max_ranks == 2 || static_cast<uint32_t>(s) < a.nranks)
        store_words(a.recv + s * a.bytes + at, a.bytes - at, v[s]);
  } else {
    uint32_t result[words] = {};
    fold_ranks<M>(a.code, v, a.nranks, result);
    store_words(a.recv + at, a.bytes - at, result);
  }
}

// This thread's units of a call; false when it was given up.
template <class M, LlShape shape>
TUTTI_KERNEL_FN bool ll_pass(const M& m, const KernelArgs& a) {
  constexpr int words = shape.lines * 3;
  constexpr int depth = shape.depth;
  constexpr int ranks = shape.max_ranks;
  const uint64_t units = (a.bytes + words * 4 - 1) / (words * 4);
  const uint64_t step = static_cast<uint64_t>(m.ctas()) * m.threads() * depth;
  bool alive = true;
  TUTTI_NO_UNROLL
  for (uint64_t first = static_cast<uint64_t>(m.cta()) * m.threads() * depth + m.thread();
       first < units && alive; first += step) {
    uint32_t v[depth][ranks][words];
    uint32_t epochs[depth][ranks][shape.lines];
    uint32_t own[depth][words];
    TUTTI_UNROLL
    for (int u = 0; u < depth; ++u)
      if (first + u * m.threads() < units) ll_push<M, shape>(m, a, first + u * m.threads(), own[u]);
    // All first looks before the first wait: their latencies overlap.
    TUTTI_UNROLL
    for (int u = 0; u < depth; ++u) {
      if (first + u * m.threads() >= units) continue;
      TUTTI_UNROLL
      for (int s = 0; s < ranks; ++s) {
        if ((ranks != 2 && static_cast<uint32_t>(s) >= a.nranks) ||
            static_cast<uint32_t>(s) == a.rank)
          continue;
        const Pack* from = inbox(m, a, a.rank, s) + (first + u * m.threads()) * shape.lines;
        peek_unit(m, from, v[u][s], epochs[u][s]);
      }
    }
    TUTTI_UNROLL
    for (int u = 0; u < depth; ++u) {
      const uint64_t unit = first + u * m.threads();
      if (unit >= units) continue;
      TUTTI_UNROLL
      for (int s = 0; s < ranks; ++s) {
        if (ranks != 2 && static_cast<uint32_t>(s) >= a.nranks) continue;
        if (static_cast<uint32_t>(s) == a.rank) {
          TUTTI_UNROLL
          for (int i = 0; i < words; ++i) v[u][s][i] = own[u][i];
          continue;
        }
        const Pack* from = inbox(m, a, a.rank, s) + unit * shape.lines;
        alive = await_unit(m, a, from, v[u][s], epochs[u][s]) && alive;
      }
      ll_store<M, shape>(m, a, unit, v[u]);
    }
  }
  return alive;
}

template <class M, LlShape shape>
TUTTI_KERNEL_FN void ll_kernel(const M& m, const KernelArgs& a) {
  finish(m, a, ll_pass<M, shape>(m, a));
}

}  // namespace tutti::gpu
