// NodeGroup: the ranks of one communicator on one node, seen from one of them: the gate of a call, and
// rounds over the lanes.
//
// A *round* moves one piece of a vector through the lanes. Rounds are numbered from 0 over the life of
// the group, the same on all ranks; round k uses half k % 2 of every lane. Each rank lays its piece out
// (its `in` counter becomes k + 1), everyone reads; in a two-shot round each rank reduces its slice of
// the piece into its out lane (`reduced` becomes k + 1) and everyone copies the slices. Why two halves
// are enough: a rank lays out round k + 2 only after it saw `in` of all at k + 2 - 1, which they set
// after they finished reading round k.
//
// Memory order: data, then the counter by store-release; the counter by load-acquire, then data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/poll.hpp"
#include "core/problem.hpp"
#include "shm/board.hpp"
#include "shm/reduce.hpp"

namespace tutti::shm {

// Most ranks of one node that a group can hold.
inline constexpr int max_members = 512;

// One member as this rank sees it.
struct Member {
  Slot* slot = nullptr;
  std::byte* lane = nullptr;  // large lane, or nullptr
  std::shared_ptr<Segment> segment;
};

// How a rank's own buffers are reached. Lanes are always host memory.
struct Access {
  bool direct = true;  // the CPU reads and writes the buffers
  // Otherwise: copies between a buffer and a lane; either pointer may be the device's.
  Status (*copy)(void* context, void* to, const void* from, size_t bytes) = nullptr;
  void* context = nullptr;
};

// What a rank says when it enters a call.
struct Announcement {
  uint64_t signature = 0;
  uint32_t detail = 0;
  uint64_t count = 0;
  Reach reach = Reach::host;
  Code error = Code::ok;
  const void* payload = nullptr;  // inline_length bytes to carry in the header
  uint8_t inline_length = 0;
  bool laid_out = false;  // round next_round() of this rank is in its lane
};

// What all ranks announced, once the gate is closed: equal on all of them, so a path may depend on it.
struct Summary {
  uint32_t reaches = 0;      // bit 1 << Reach for each kind that occurs
  bool all_inline = true;
  bool all_laid_out = true;
};

class NodeGroup {
 public:
  // members in rank order. lane_bytes: of the large lanes, 0 when one of the members has none.
  NodeGroup(int rank, std::vector<Member> members, size_t lane_bytes);

  int rank() const { return rank_; }
  int nranks() const { return static_cast<int>(members_.size()); }
  Slot& slot(int rank) const { return *members_[static_cast<size_t>(rank)].slot; }

  // Enters the next call.
  void announce(const Announcement& announcement);
  // Whether all have entered the call; compares what they announced. mismatch names ranks and values.
  Poll gate();
  const Summary& summary() const { return summary_; }
  uint64_t sequence() const { return sequence_; }
  const Header& header(int rank) const {
    return slot(rank).header[sequence_ % 2];
  }
  // First rank that gate() still waits for, -1 when none.
  int missing() const { return cursor_ < nranks() ? cursor_ : -1; }

  // Rounds. piece_bytes(true) is what a round can move through the large lanes.
  uint64_t next_round() const { return round_; }
  void finish_rounds(uint64_t rounds) { round_ += rounds; }
  bool has_large_lane() const { return chunk_bytes_ != 0; }
  size_t chunk_bytes(bool large) const { return large ? chunk_bytes_ : Slot::small_half_bytes; }
  std::byte* in_lane(int rank, uint64_t round, bool large) const;
  std::byte* out_lane(int rank, uint64_t round, bool large) const;
  void publish_in(uint64_t round) {
    slot(rank_).in.store(round + 1, std::memory_order_release);
  }
  void publish_reduced(uint64_t round) {
    slot(rank_).reduced.store(round + 1, std::memory_order_release);
  }
  bool arrived_in(int rank, uint64_t round) const {
    return slot(rank).in.load(std::memory_order_acquire) > round;
  }
  bool arrived_reduced(int rank, uint64_t round) const {
    return slot(rank).reduced.load(std::memory_order_acquire) > round;
  }

  // Ends this and every later call on all members with that code: rounds may be half done, so the
  // group has lost its step for good.
  void abort(Code code);
  Code aborted() const;

 private:
  Status check(int peer) const;

  int rank_;
  std::vector<Member> members_;
  size_t chunk_bytes_ = 0;  // of the large lane's in half
  uint64_t sequence_ = 0;
  uint64_t round_ = 0;
  int cursor_ = 0;
  uint32_t looks_ = 0;
  Code failed_ = Code::ok;  // of an earlier call
  Summary summary_;
};

// Allreduce through the lanes, as a state machine that never blocks. Reduces in rank order, so every
// path through it, and every rank, has the same bits (law 5).
//
// One-shot: every rank lays its vector out and reduces all of them: one meeting, (P-1) n bytes read a
// rank. Two-shot: every rank reduces 1/P of each piece: two meetings a piece, the next piece's layout
// overlapping the second.
class NodeAllreduce {
 public:
  explicit NodeAllreduce(NodeGroup& group) : group_(group) {}

  // Largest vector that goes one-shot, for a group of that size. Agreed.
  static size_t oneshot_limit(int nranks);

  // Prepares a call: how it is cut into pieces.
  void prepare(const Agreed& agreed, const Local& local, const Access& access,
               size_t oneshot_limit_bytes);
  // Lays the first piece out ahead of the gate, which spares a meeting. Only for direct buffers, and
  // only where no summary can lead past the rounds: a round once published must be finished.
  bool lay_out_first();
  // After the gate. all_laid_out: every rank has laid out its first piece.
  Poll poll(bool all_laid_out);
  const char* phase() const;
  int missing() const { return cursor_ < group_.nranks() ? cursor_ : -1; }

 private:
  enum class Phase : uint8_t { input, wait_in, wait_reduced, done };
  struct Range {
    uint64_t begin = 0;
    uint64_t count = 0;
  };
  Range piece(uint64_t index) const;
  Range slice(const Range& piece, int rank) const;
  Status lay_out(uint64_t index);
  Status reduce_all();
  Status reduce_slice();
  Status copy_out();
  Status copy(void* to, const void* from, size_t bytes);
  Status give(std::byte* to, const std::byte* from, uint64_t count);
  Poll waiting();
  bool all_in();
  bool all_reduced();

  NodeGroup& group_;
  const Reducer* reducer_ = nullptr;
  const std::byte* send_ = nullptr;
  std::byte* recv_ = nullptr;
  Access access_;
  uint64_t count_ = 0;
  size_t extent_ = 1;
  Dtype dtype_ = Dtype::byte;
  uint64_t pieces_ = 0;
  uint64_t piece_count_ = 0;  // elements of a full piece
  uint64_t slice_unit_ = 1;   // elements to which slices are rounded: a cache line where it divides
  uint64_t laid_out_ = 0;     // pieces laid out so far
  uint64_t index_ = 0;        // piece being moved
  uint64_t first_round_ = 0;
  bool oneshot_ = true;
  bool large_ = false;
  int cursor_ = 0;
  uint32_t looks_ = 0;
  Phase phase_ = Phase::input;
};

}  // namespace tutti::shm
