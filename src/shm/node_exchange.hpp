// Collectives of one meeting a piece, through the lanes of a node: every rank lays a piece of its
// input out, and when all have, takes from all lanes what is its own.
//
//   allgather, allgatherv     a piece of the own block         everybody's, copied
//   alltoall                  the same piece of every block    own block of everybody's, copied
//   reduce_scatter(_block)    the same piece of every block    own block of everybody's, reduced
//   scan, exscan              a piece of the vector            the lower ranks', reduced
//   bcast                     the root: a piece                all but the root: the root's
//   gather                    a piece of the own block         the root: everybody's, copied
//   scatter                   the root: as alltoall            own block of the root's
//   reduce                    a piece of the vector            the root: everybody's, reduced
//   barrier                   nothing
//
// Rooted ones meet as all others do: who has nothing to lay out or take says so all the same, and so the
// next piece finds the lanes free.
//
// Reductions are in rank order, as in NodeAllreduce. Bytes a rank: lays out its input once, reads
// what it needs once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shm/reduce.hpp"
#include "shm/rounds.hpp"

namespace tutti::shm {

class NodeExchange final : public Rounds {
 public:
  explicit NodeExchange(NodeGroup& group) : Rounds(group) {}

  // Which collectives; with a reduction, find_reducer must know it.
  static bool handles(Coll coll);

  void prepare(const Agreed& agreed, const Local& local, const Access& access) override;
  Poll poll(bool all_laid_out) override;
  const char* phase() const override;

 private:
  enum class Shape : uint8_t { gather, exchange, reduce_scatter, scan };
  enum class Phase : uint8_t { input, wait_in, done };

  uint64_t count_of(int rank) const;          // elements of that rank's block
  bool gives(int from, int to) const;         // whether something of `from` is for `to`
  uint64_t input_offset_of(int rank) const;   // of its block in a vector of all blocks, packed
  uint64_t output_offset_of(int rank) const;  // in recv of a gather
  uint64_t piece_of(uint64_t count) const;    // elements of a block of `count` in the current piece
  Status lay_out(uint64_t index) override;
  Status take();
  Status take_copies();
  Status take_reduction();
  // Where the piece for that rank begins in a lane, in elements.
  uint64_t lane_offset_of(int rank) const;
  bool own_stays() const;

  Shape shape_ = Shape::gather;
  Coll coll_ = Coll::allgather;
  const Reducer* reducer_ = nullptr;
  int root_ = -1;                 // of a rooted one
  uint64_t count_ = 0;            // of every block, where counts_ is empty
  std::vector<uint64_t> counts_;  // of each block
  std::vector<uint64_t> packed_;  // sums of the counts before each block
  std::vector<uint64_t> displs_;  // of an allgatherv's output
  uint64_t piece_count_ = 0;      // elements of a full piece of one block
  Phase phase_ = Phase::input;
};

}  // namespace tutti::shm
