// Allreduce through the lanes of a node.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shm/reduce.hpp"
#include "shm/rounds.hpp"

namespace tutti::shm {

// Allreduce through the lanes, as a state machine that never blocks. Reduces in rank order, so
// every path through it, and every rank, has the same bits (law 5).
//
// One-shot: every rank lays its vector out and reduces all of them: one meeting, (P-1) n bytes read
// a rank. Two-shot: every rank reduces 1/P of each piece: two meetings a piece, the next piece's
// layout overlapping the second.
class NodeAllreduce final : public Rounds {
 public:
  // Vectors of at most that many bytes go one-shot. Agreed.
  NodeAllreduce(NodeGroup& group, size_t oneshot_limit_bytes)
      : Rounds(group), oneshot_limit_bytes_(oneshot_limit_bytes) {}

  // The tuned limit for a group of that size.
  static size_t oneshot_limit(int nranks);

  void prepare(const Agreed& agreed, const Local& local, const Access& access) override;
  Poll poll(bool all_laid_out) override;
  const char* phase() const override;

 private:
  enum class Phase : uint8_t { input, wait_in, wait_reduced, done };
  struct Range {
    uint64_t begin = 0;
    uint64_t count = 0;
  };
  Range piece(uint64_t index) const;
  Range slice(const Range& piece, int rank) const;
  Status lay_out(uint64_t index) override;
  Status reduce_all();
  Status reduce_slice();
  Status copy_out();

  size_t oneshot_limit_bytes_;
  const Reducer* reducer_ = nullptr;
  uint64_t count_ = 0;
  uint64_t piece_count_ = 0;  // elements of a full piece
  uint64_t slice_unit_ = 1;   // elements to which slices are rounded: a cache line where it divides
  bool oneshot_ = true;
  Phase phase_ = Phase::input;
};

}  // namespace tutti::shm
