#include "shm/node.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/log.hpp"

namespace tutti::shm {

namespace {

// Payloads of a header are a few words: a loop of words beats a call of memcpy.
inline void copy_words(std::byte* to, const void* from, size_t bytes) {
  const auto* source = static_cast<const std::byte*>(from);
  while (bytes >= 8) {
    std::memcpy(to, source, 8);
    to += 8;
    source += 8;
    bytes -= 8;
  }
  for (size_t i = 0; i < bytes; ++i) to[i] = source[i];
}

constexpr size_t page_bytes = 4096;

// Where a padded pair has its index: aligned to its own size.
constexpr size_t pair_index_offset(Dtype dtype) {
  const size_t value_bytes = info(dtype).bytes - sizeof(int32_t);
  return (value_bytes + 3) / 4 * 4;
}

// Polls between looks at every member's abort word: they share a line with what is seldom written,
// so a look costs cache hits, but n of them.
constexpr uint32_t polls_between_abort_looks = 64;

// A large lane is in[0], in[1], out[0], out[1]; an out half holds one rank's slice of a piece, so
// half a piece is enough from two ranks up.
constexpr size_t chunk_of_lane(size_t lane_bytes) {
  return lane_bytes / 3 / (2 * page_bytes) * (2 * page_bytes);
}

}  // namespace

NodeGroup::NodeGroup(int rank, std::vector<Member> members, size_t lane_bytes)
    : rank_(rank), members_(std::move(members)), chunk_bytes_(chunk_of_lane(lane_bytes)) {}

void NodeGroup::announce(const Announcement& announcement) {
  ++sequence_;
  cursor_ = 0;
  summary_ = Summary{};
  Slot& own = slot(rank_);
  Header& line = own.header[sequence_ % 2];
  own.counts[sequence_ % 2] = announcement.count;
  line.signature = announcement.signature;
  line.reach = announcement.reach;
  line.inline_length = announcement.inline_length;
  line.laid_out = announcement.laid_out;
  line.error = static_cast<uint8_t>(announcement.error);
  line.detail = announcement.detail;
  copy_words(line.payload, announcement.payload, announcement.inline_length);
  // Release: the line, and what the lane holds if it was laid out, are there before the number.
  line.sequence.store(sequence_, std::memory_order_release);
}

Status NodeGroup::check(int peer) const {
  const Header& mine = header(rank_);
  const Header& theirs = header(peer);
  if (theirs.error != 0) return static_cast<Code>(theirs.error);
  if (theirs.signature == mine.signature) return {};
  TUTTI_ERROR("shm",
              "call number {} differs between ranks of one communicator: rank {} has {} of {} {}, "
              "rank {} has {} of {} {}; all ranks must make the same call",
              sequence_, rank_, name(static_cast<Coll>(mine.detail & 0xff)),
              slot(rank_).counts[sequence_ % 2], name(static_cast<Dtype>(mine.detail >> 8 & 0xff)),
              peer, name(static_cast<Coll>(theirs.detail & 0xff)), slot(peer).counts[sequence_ % 2],
              name(static_cast<Dtype>(theirs.detail >> 8 & 0xff)));
  return Code::mismatch;
}

Poll NodeGroup::gate() {
  if (failed_ != Code::ok) return Poll::failed(failed_);
  const int n = nranks();
  for (; cursor_ < n; ++cursor_) {
    const Header& line = header(cursor_);
    if (line.sequence.load(std::memory_order_acquire) < sequence_) {
      if (++looks_ % polls_between_abort_looks == 0)
        if (Code code = aborted(); code != Code::ok) {
          failed_ = code;
          return Poll::failed(code);
        }
      return Poll::busy();
    }
    summary_.reaches |= 1u << static_cast<uint32_t>(line.reach);
    summary_.all_inline &= line.inline_length != 0;
    summary_.all_laid_out &= line.laid_out != 0;
    if (cursor_ == rank_) continue;
    if (Status status = check(cursor_); !status.ok()) {
      abort(status.code());
      return Poll::failed(status);
    }
  }
  return Poll::done();
}

std::byte* NodeGroup::in_lane(int rank, uint64_t round, bool large) const {
  const Member& member = members_[static_cast<size_t>(rank)];
  const size_t half = round % 2;
  return large ? member.lane + half * chunk_bytes_ : member.slot->in_lane[half];
}

std::byte* NodeGroup::out_lane(int rank, uint64_t round, bool large) const {
  const Member& member = members_[static_cast<size_t>(rank)];
  const size_t half = round % 2;
  return large ? member.lane + 2 * chunk_bytes_ + half * (chunk_bytes_ / 2)
               : member.slot->out_lane[half];
}

void NodeGroup::abort(Code code) {
  failed_ = code;
  slot(rank_).aborted.store(static_cast<uint32_t>(code), std::memory_order_release);
}

Code NodeGroup::aborted() const {
  for (const Member& member : members_) {
    const uint32_t code = member.slot->aborted.load(std::memory_order_acquire);
    if (code != 0) return static_cast<Code>(code);
  }
  return Code::ok;
}

size_t NodeAllreduce::oneshot_limit(int nranks) {
  // One-shot saves a meeting and costs (P-1)/P of the vector more to read and reduce. Both fit the
  // small lane; see bench/results for the sweep.
  return std::min<size_t>(Slot::small_half_bytes, size_t{16384} / static_cast<size_t>(nranks));
}

void NodeAllreduce::prepare(const Agreed& agreed, const Local& local, const Access& access,
                            size_t oneshot_limit_bytes) {
  const int n = group_.nranks();
  reducer_ = find_reducer(agreed.op, agreed.dtype);
  dtype_ = agreed.dtype;
  extent_ = info(agreed.dtype).extent;
  count_ = agreed.count;
  send_ = static_cast<const std::byte*>(local.in_place ? local.recv : local.send);
  recv_ = static_cast<std::byte*>(local.recv);
  access_ = access;
  const uint64_t bytes = count_ * extent_;
  oneshot_ = bytes <= std::min(oneshot_limit_bytes, Slot::small_half_bytes);
  large_ = !oneshot_ && group_.has_large_lane();
  slice_unit_ = line_bytes % extent_ == 0 ? line_bytes / extent_ : 1;
  // A slice, a rounded P-th of a piece, must fit an out half.
  const uint64_t most = group_.chunk_bytes(large_) / extent_ / slice_unit_ * slice_unit_;
  pieces_ = count_ == 0 ? 0 : (count_ + most - 1) / most;
  // Pieces of equal size: a short last piece would meet as often for less.
  piece_count_ = pieces_ == 0 ? 0 : (count_ + pieces_ - 1) / pieces_;
  piece_count_ = std::min(most, (piece_count_ + slice_unit_ - 1) / slice_unit_ * slice_unit_);
  if (piece_count_ != 0) pieces_ = (count_ + piece_count_ - 1) / piece_count_;
  laid_out_ = 0;
  index_ = 0;
  cursor_ = 0;
  first_round_ = group_.next_round();
  phase_ = pieces_ == 0 || n == 0 ? Phase::done : Phase::input;
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

Status NodeAllreduce::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return {};
  if (access_.direct) {
    std::memcpy(to, from, bytes);
    return {};
  }
  return access_.copy(access_.context, to, from, bytes);
}

// Gives elements of a lane to the program; bytes of an element that hold no data keep what they
// had.
Status NodeAllreduce::give(std::byte* to, const std::byte* from, uint64_t count) {
  const DtypeInfo& type = info(dtype_);
  if (type.bytes == type.extent || !access_.direct) return copy(to, from, count * extent_);
  // A pair: the value, a gap perhaps, then a 4-byte index that ends the data.
  const size_t index_at = pair_index_offset(dtype_);
  const size_t value_bytes = type.bytes - sizeof(int32_t);
  for (uint64_t i = 0; i < count; ++i, to += extent_, from += extent_) {
    std::memcpy(to, from, value_bytes);
    std::memcpy(to + index_at, from + index_at, sizeof(int32_t));
  }
  return {};
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
  // The program's buffer instead of the own lane: its lines are still on their way out of this core.
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

bool NodeAllreduce::all_in() {
  const uint64_t round = first_round_ + index_;
  for (; cursor_ < group_.nranks(); ++cursor_)
    if (!group_.arrived_in(cursor_, round)) return false;
  return true;
}

bool NodeAllreduce::all_reduced() {
  const uint64_t round = first_round_ + index_;
  for (; cursor_ < group_.nranks(); ++cursor_)
    if (!group_.arrived_reduced(cursor_, round)) return false;
  return true;
}

Poll NodeAllreduce::waiting() {
  if (++looks_ % polls_between_abort_looks == 0)
    if (Code code = group_.aborted(); code != Code::ok) {
      group_.abort(code);
      return Poll::failed(code);
    }
  return Poll::busy();
}

bool NodeAllreduce::lay_out_first() {
  if (pieces_ == 0 || !access_.direct) return false;
  return lay_out(0).ok();
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
        if (!(index_ == 0 && all_laid_out) && !all_in()) return waiting();
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
        if (!all_reduced()) return waiting();
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
