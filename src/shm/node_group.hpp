// NodeGroup: the ranks of one communicator on one node, seen from one of them: the gate of a call,
// and rounds over the lanes.
//
// A *round* moves one piece of a vector through the lanes. Rounds are numbered from 0 over the life
// of the group, the same on all ranks; round k uses half k % 2 of every lane. Each rank lays its
// piece out (its `in` counter becomes k + 1), everyone reads; in a two-shot round each rank reduces
// its slice of the piece into its out lane (`reduced` becomes k + 1) and everyone copies the
// slices. Why two halves are enough: a rank lays out round k + 2 only after it saw `in` of all at k
// + 2 - 1, which they set after they finished reading round k.
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

namespace tutti::shm {

// Fewest and most ranks of one node that a group can hold.
inline constexpr int min_members = 2;
inline constexpr int max_members = 512;

// One member as this rank sees it.
struct Member {
  Slot* slot = nullptr;
  std::byte* lane = nullptr;  // large lane, or nullptr
  std::shared_ptr<Segment> segment;
};

// What a rank says when it enters a call.
struct Announcement {
  uint64_t signature = 0;
  uint32_t detail = 0;
  uint64_t count = 0;
  Reach reach = Reach::host;
  Code error = Code::ok;
  const void* payload = nullptr;  // inline_length bytes to carry in the header; null: none to tell
  uint8_t inline_length = 0;
  bool laid_out = false;  // round next_round() of this rank is in its lane
};

// What all ranks announced, once the gate is closed: equal on all of them, so a path may depend on
// it.
struct Summary {
  uint32_t reaches = 0;  // bit() of each that occurs
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
  // Whether all have entered the call; compares what they announced. mismatch names ranks and
  // values.
  Poll gate();
  const Summary& summary() const { return summary_; }
  uint64_t sequence() const { return sequence_; }
  const Header& header(int rank) const { return slot(rank).header[sequence_ % 2]; }
  // First rank that gate() still waits for, -1 when none.
  int missing() const { return cursor_ < nranks() ? cursor_ : -1; }
  // Between calls: whether some rank has entered the next one.
  bool anyone_ahead() const;

  // Rounds. piece_bytes(true) is what a round can move through the large lanes.
  uint64_t next_round() const { return round_; }
  void finish_rounds(uint64_t rounds) { round_ += rounds; }
  bool has_large_lane() const { return chunk_bytes_ != 0; }
  size_t chunk_bytes(bool large) const { return large ? chunk_bytes_ : Slot::small_half_bytes; }
  std::byte* in_lane(int rank, uint64_t round, bool large) const;
  std::byte* out_lane(int rank, uint64_t round, bool large) const;
  void publish_in(uint64_t round) { slot(rank_).in.store(round + 1, std::memory_order_release); }
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

}  // namespace tutti::shm
