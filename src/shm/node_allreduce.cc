#include "shm/node_allreduce.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace tutti::shm {

size_t NodeAllreduce::oneshot_limit(int nranks) {
  // One-shot saves a meeting and costs (P-1)/P of the vector more to read and reduce. Both fit the
  // small lane; see bench/results for the sweep.
  return std::min<size_t>(Slot::small_half_bytes, size_t{16384} / static_cast<size_t>(nranks));
}

void NodeAllreduce::prepare(const Agreed& agreed, const Local& local, const Access& access) {
  take_buffers(agreed, local, access);
  reducer_ = find_reducer(agreed.op, agreed.dtype);
  count_ = agreed.count;
  const uint64_t bytes = count_ * extent_;
  oneshot_ = bytes <= std::min(oneshot_limit_bytes_, Slot::small_half_bytes);
  large_ = !oneshot_ && group_.has_large_lane();
  slice_unit_ = line_bytes % extent_ == 0 ? line_bytes / extent_ : 1;
  // A slice, a rounded P-th of a piece, must fit an out half.
  const uint64_t most = group_.chunk_bytes(large_) / extent_ / slice_unit_ * slice_unit_;
  pieces_ = count_ == 0 ? 0 : (count_ + most - 1) / most;
  // Pieces of equal size: a short last piece would meet as often for less.
  piece_count_ = pieces_ == 0 ? 0 : (count_ + pieces_ - 1) / pieces_;
  piece_count_ = std::min(most, (piece_count_ + slice_unit_ - 1) / slice_unit_ * slice_unit_);
  if (piece_count_ != 0) pieces_ = (count_ + piece_count_ - 1) / piece_count_;
  phase_ = pieces_ == 0 ? Phase::done : Phase::input;
}

NodeAllreduce::Range NodeAllreduce::piece(uint64_t index) const {
  const uint64_t begin = index * piece_count_;
  return {begin, std::min(piece_count_, count_ - begin)};
}

NodeAllreduce::Range NodeAllreduce::slice(const Range& piece, int rank) const {
  const auto n = static_cast<uint64_t>(group_.nranks());
  uint64_t each = (piece.count + n - 1) / n;
  each = (each + slice_unit_ - 1) / slice_unit_ * slice_unit_;
  const uint64_t begin = std::min(piece.count, each * static_cast<uint64_t>(rank));
  return {begin, std::min(each, piece.count - begin)};
}

Status NodeAllreduce::lay_out(uint64_t index) {
  const Range range = piece(index);
  const uint64_t round = first_round_ + index;
  std::byte* lane = group_.in_lane(group_.rank(), round, large_);
  const std::byte* from = send_ + range.begin * extent_;
  if (oneshot_ || !access_.direct) {
    TUTTI_TRY(copy(lane, from, range.count * extent_));
  } else {
    // Nobody else reads this rank's own slice.
    const Range own = slice(range, group_.rank());
    const uint64_t behind = own.begin + own.count;
    std::memcpy(lane, from, own.begin * extent_);
    std::memcpy(lane + behind * extent_, from + behind * extent_, (range.count - behind) * extent_);
  }
  group_.publish_in(round);
  laid_out_ = index + 1;
  return {};
}

// The vectors of all ranks, in rank order, reduced into the output.
Status NodeAllreduce::reduce_all() {
  const int n = group_.nranks();
  const uint64_t round = first_round_;
  std::array<const void*, max_members> parts;
  std::byte* to = access_.direct ? recv_ : group_.out_lane(group_.rank(), round, large_);
  for (int r = 0; r < n; ++r) parts[static_cast<size_t>(r)] = group_.in_lane(r, round, large_);
  // The program's buffer instead of the own lane: its lines are still on their way out of this
  // core.
  if (access_.direct) parts[static_cast<size_t>(group_.rank())] = send_;
  reducer_->many(to, parts.data(), n, count_);
  if (access_.direct) return {};
  return copy(recv_, to, count_ * extent_);
}

Status NodeAllreduce::reduce_slice() {
  const int n = group_.nranks();
  const uint64_t round = first_round_ + index_;
  const Range range = piece(index_);
  const Range own = slice(range, group_.rank());
  std::array<const void*, max_members> parts;
  for (int r = 0; r < n; ++r)
    parts[static_cast<size_t>(r)] = group_.in_lane(r, round, large_) + own.begin * extent_;
  std::byte* out = group_.out_lane(group_.rank(), round, large_);
  if (access_.direct) {
    parts[static_cast<size_t>(group_.rank())] = send_ + (range.begin + own.begin) * extent_;
  }
  if (own.count != 0) reducer_->many(out, parts.data(), n, own.count);
  group_.publish_reduced(round);
  return {};
}

Status NodeAllreduce::copy_out() {
  const uint64_t round = first_round_ + index_;
  const Range range = piece(index_);
  for (int i = 0; i < group_.nranks(); ++i) {
    // Own slice first: it is in this core's cache. Then each rank begins with another peer.
    const int r = (group_.rank() + i) % group_.nranks();
    const Range part = slice(range, r);
    TUTTI_TRY(copy(recv_ + (range.begin + part.begin) * extent_, group_.out_lane(r, round, large_),
                   part.count * extent_));
  }
  return {};
}

Poll NodeAllreduce::poll(bool all_laid_out) {
  for (;;) {
    switch (phase_) {
      case Phase::input:
        if (laid_out_ == index_)
          if (Status status = lay_out(index_); !status.ok()) return Poll::failed(status);
        cursor_ = 0;
        phase_ = Phase::wait_in;
        [[fallthrough]];
      case Phase::wait_in: {
        if (!(index_ == 0 && all_laid_out) && !all_in(first_round_ + index_)) return waiting();
        Status status = oneshot_ ? reduce_all() : reduce_slice();
        if (!status.ok()) return Poll::failed(status);
        if (oneshot_) {
          phase_ = Phase::done;
          continue;
        }
        // The next piece is laid out while peers still reduce this one.
        if (index_ + 1 < pieces_)
          if (status = lay_out(index_ + 1); !status.ok()) return Poll::failed(status);
        cursor_ = 0;
        phase_ = Phase::wait_reduced;
        [[fallthrough]];
      }
      case Phase::wait_reduced: {
        if (!all_reduced(first_round_ + index_)) return waiting();
        if (Status status = copy_out(); !status.ok()) return Poll::failed(status);
        ++index_;
        phase_ = index_ < pieces_ ? Phase::input : Phase::done;
        continue;
      }
      case Phase::done:
        group_.finish_rounds(pieces_);
        pieces_ = 0;
        return Poll::done();
    }
  }
}

const char* NodeAllreduce::phase() const {
  switch (phase_) {
    case Phase::input:
      return "laying out";
    case Phase::wait_in:
      return "waiting for input";
    case Phase::wait_reduced:
      return "waiting for slices";
    case Phase::done:
      return "done";
  }
  return "";
}

}  // namespace tutti::shm
