// Problem = Agreed + Local: one collective call as a value.
//
// Agreed holds only what the MPI standard makes equal on all ranks of the communicator (the table in
// HACKING.md section 4). Everything that chooses a path takes `const Agreed&` and cannot read the
// rest; so all ranks choose alike. Local is this rank's own: it may steer where bytes lie, never which
// messages are sent.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.hpp"
#include "core/types.hpp"

namespace tutti {

struct Agreed {
  Coll coll = Coll::allreduce;
  Op op = Op::sum;            // reductions only
  bool commutative = true;    // of a user operation
  Dtype dtype = Dtype::byte;  // reductions: the element; movement: byte
  // Elements: of the whole vector in allreduce, reduce, bcast, scan; of one rank's block in
  // allgather, alltoall, gather, scatter, reduce_scatter_block.
  uint64_t count = 0;
  // Elements of each rank's block, nranks long: allgatherv and reduce_scatter only.
  std::span<const uint64_t> counts;
  int root = 0;
  // Of 16-bit sums and products: partial ones are kept and sent as fp32 (`wide` places of a schedule),
  // and rounded once, at the end.
  bool wide = false;

  uint64_t bytes() const { return count * info(dtype).extent; }
};

struct Local {
  // Null where this rank has no such buffer (gather's recv but at the root). In place send equals
  // recv; at the root of a scatter in place it holds the blocks, and recv is null.
  const void* send = nullptr;
  void* recv = nullptr;
  bool in_place = false;
  // Element displacements in the v-forms, nranks long; empty means packed in rank order.
  std::span<const uint64_t> send_displs;
  std::span<const uint64_t> recv_displs;
  // Elements that this rank sends in gatherv or receives in scatterv: only the root knows all counts.
  uint64_t count = 0;
  // alltoallv: elements to and from each rank; gatherv: recv_counts, scatterv: send_counts, at the root.
  std::span<const uint64_t> send_counts;
  std::span<const uint64_t> recv_counts;
  // Memory that the CPU and the network do not reach: only copies and group steps touch it.
  bool send_on_device = false;
  bool recv_on_device = false;
  // Why this rank cannot take part: its peers are told, and the call fails on all.
  Code error = Code::ok;
};

struct Problem {
  Agreed agreed;
  Local local;
};

}  // namespace tutti
