#include "shm/node_group.hpp"

#include <cstring>

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
  // A member that has aborted enters later calls with its error: whoever finds all numbers at the first look
  // never comes to look at the abort words.
  line.error = static_cast<uint8_t>(failed_ != Code::ok ? failed_ : announcement.error);
  line.detail = announcement.detail;
  if (announcement.payload != nullptr)
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
    summary_.reaches |= bit(line.reach);
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

bool NodeGroup::anyone_ahead() const {
  for (const Member& member : members_)
    if (member.slot->header[(sequence_ + 1) % 2].sequence.load(std::memory_order_acquire) >
        sequence_)
      return true;
  return false;
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

}  // namespace tutti::shm
