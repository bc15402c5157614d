// Phases: pieces of schedules that several algorithms are put together from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "coll/patterns.hpp"
#include "core/problem.hpp"
#include "sched/schedule.hpp"

namespace tutti {

// Ring reduce-scatter. Block b starts at rank b + 1, goes up the ring and ends, complete, at rank
// b.
struct RingReduceScatter {
  int rank, nranks;
  Ref own;                        // this rank's whole vector
  std::span<const Block> blocks;  // of the vector, one a rank
  Ref result;                     // for the own block
  Pieces pieces;                  // every block is cut alike
  uint32_t tag = 0;               // uses (nranks - 1) * pieces.count from here
  // Whether `result` overlaps `own` otherwise than as its own block.
  bool overlaps = false;

  std::vector<Id> done{};     // out: per piece, the result is complete
  std::vector<Id> reading{};  // out: per block and piece, the last step that reads `own` there

  void append(ScheduleBuilder& builder);

 private:
  struct Landing {
    Ref at[2];
    Id freed[2] = {no_step, no_step};
  };
  void append_piece(ScheduleBuilder& builder, uint64_t piece, Landing& landing, Id& last_recv);
  bool own_is_lower(int block) const;
};

// Ring allgather: every block goes round from its rank.
struct RingAllgather {
  int rank, nranks;
  std::span<const Ref> blocks;  // where each rank's block ends
  Ref own;                      // what is sent as the own block (may be blocks[rank])
  Pieces pieces;
  uint32_t tag = 0;           // uses (nranks - 1) * pieces.count from here
  std::span<const Id> ready;  // per piece of the own block; empty: now
  std::span<const Id> guard;  // per block and piece: before it is overwritten; empty: none

  void append(ScheduleBuilder& builder);
};

// The vector of all blocks of an allgather(v) in rank order without gaps: the output itself, or
// scratch when displacements scatter the blocks.
class PackedBlocks {
 public:
  PackedBlocks(const Problem& problem, int rank, int nranks, ScheduleBuilder& builder);
  // Blocks of ranks first .. first + n - 1.
  Ref range(int first, int n) const;
  Ref own() const { return own_; }
  // After which step the own block lies in range(rank, 1).
  Id own_ready() const { return own_ready_; }
  // Copies blocks of ranks first .. first + n - 1, complete after `ready`, to where the call wants
  // them; not the own block, which is there already.
  void unpack(int first, int n, Id ready);

 private:
  ScheduleBuilder& builder_;
  int rank_;
  std::vector<Block> final_;
  std::vector<uint64_t> offset_;  // nranks + 1
  Ref whole_;
  Ref own_;
  Id own_ready_ = no_step;
  bool packed_;
};

// Broadcast of `range` down a k-nomial tree. Returns the step after which the range is complete
// here.
Id knomial_bcast(ScheduleBuilder& builder, int rank, int nranks, int root, int radix, Ref range,
                 Id ready, uint32_t tag);

// Reduction of whole vectors up a k-nomial tree; parts fold in rank order when root is 0. `result`
// is written at the root only. Returns the step after which it is complete.
Id knomial_reduce(ScheduleBuilder& builder, int rank, int nranks, int root, int radix, Ref own,
                  Ref result, uint32_t tag);

// Every pair of ranks exchanges its blocks of an alltoall(v, w), `window` exchanges at a time;
// `sparse` leaves out empty blocks.
Status pairwise_exchange(const Problem& problem, int rank, int nranks, uint64_t window, bool sparse,
                         ScheduleBuilder& builder);

// This rank's contribution to an allgather(v) or gather(v), wherever it lies.
Ref own_block(const Problem& problem, int rank, const Block& at_output);

}  // namespace tutti
