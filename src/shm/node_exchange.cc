#include "shm/node_exchange.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace tutti::shm {

bool NodeExchange::handles(Coll coll) {
  switch (coll) {
    case Coll::allgather:
    case Coll::allgatherv:
    case Coll::alltoall:
    case Coll::reduce_scatter:
    case Coll::reduce_scatter_block:
    case Coll::scan:
    case Coll::exscan:
    case Coll::bcast:
    case Coll::gather:
    case Coll::scatter:
    case Coll::reduce:
    case Coll::barrier:
      return true;
    default:
      return false;
  }
}

void NodeExchange::prepare(const Agreed& agreed, const Local& local, const Access& access) {
  take_buffers(agreed, local, access);
  coll_ = agreed.coll;
  count_ = agreed.count;
  counts_.assign(agreed.counts.begin(), agreed.counts.end());
  displs_.assign(local.recv_displs.begin(), local.recv_displs.end());
  packed_.clear();
  for (uint64_t before = 0; uint64_t count : counts_) {
    packed_.push_back(before);
    before += count;
  }
  reducer_ = nullptr;
  root_ = -1;
  switch (coll_) {
    case Coll::alltoall:
      shape_ = Shape::exchange;
      break;
    case Coll::scatter:
      shape_ = Shape::exchange;
      root_ = agreed.root;
      break;
    case Coll::bcast:
      // Its one buffer is both: at the root the input, which stays, elsewhere the output.
      in_place_ = true;
      send_ = recv_;
      [[fallthrough]];
    case Coll::gather:
      shape_ = Shape::gather;
      root_ = agreed.root;
      break;
    case Coll::reduce:
      shape_ = Shape::reduce_scatter;
      reducer_ = find_reducer(agreed.op, agreed.dtype);
      root_ = agreed.root;
      break;
    case Coll::reduce_scatter:
    case Coll::reduce_scatter_block:
      shape_ = Shape::reduce_scatter;
      reducer_ = find_reducer(agreed.op, agreed.dtype);
      break;
    case Coll::scan:
    case Coll::exscan:
      shape_ = Shape::scan;
      reducer_ = find_reducer(agreed.op, agreed.dtype);
      break;
    default:
      shape_ = Shape::gather;
  }
  const uint64_t longest =
      counts_.empty() ? count_ : *std::max_element(counts_.begin(), counts_.end());
  const bool for_all =
      shape_ == Shape::exchange || (shape_ == Shape::reduce_scatter && coll_ != Coll::reduce);
  const uint64_t blocks = for_all ? static_cast<uint64_t>(group_.nranks()) : 1;
  // The small lanes have been touched and are hot; the large ones pay from two small pieces up.
  large_ = group_.has_large_lane() && longest * blocks * extent_ > Slot::small_half_bytes;
  // The result of a reduction may wait in an out half, which is half an in half.
  const size_t room = group_.chunk_bytes(large_) / (reducer_ != nullptr && blocks == 1 ? 2 : 1);
  const uint64_t most = std::max<uint64_t>(1, room / extent_ / blocks);
  pieces_ = (longest + most - 1) / most;
  piece_count_ = pieces_ == 0 ? 0 : (longest + pieces_ - 1) / pieces_;
  phase_ = pieces_ == 0 ? Phase::done : Phase::input;
}

uint64_t NodeExchange::count_of(int rank) const {
  return counts_.empty() ? count_ : counts_[static_cast<size_t>(rank)];
}

bool NodeExchange::gives(int from, int to) const {
  switch (coll_) {
    case Coll::bcast:
    case Coll::scatter:
      return from == root_;
    case Coll::gather:
    case Coll::reduce:
      return to == root_;
    default:
      return true;
  }
}

// The one vector of a reduce, and the block that a bcast's root has for all, begin both buffers.
uint64_t NodeExchange::input_offset_of(int rank) const {
  if (coll_ == Coll::reduce || coll_ == Coll::bcast) return 0;
  return packed_.empty() ? count_ * static_cast<uint64_t>(rank)
                         : packed_[static_cast<size_t>(rank)];
}

uint64_t NodeExchange::output_offset_of(int rank) const {
  if (coll_ == Coll::scatter) return 0;
  return displs_.empty() ? input_offset_of(rank) : displs_[static_cast<size_t>(rank)];
}

uint64_t NodeExchange::lane_offset_of(int rank) const {
  if (shape_ == Shape::gather || shape_ == Shape::scan || coll_ == Coll::reduce) return 0;
  return static_cast<uint64_t>(rank) * piece_count_;
}

uint64_t NodeExchange::piece_of(uint64_t count) const {
  const uint64_t begin = std::min(count, index_ * piece_count_);
  return std::min(piece_count_, count - begin);
}

// Whether the own block is read where it lies. In place, a reduce-scatter's results overwrite
// blocks that are already laid out, but may overlap the piece of the own block that is being
// reduced; a reduce's piece and result are the same bytes, which the reducer allows.
bool NodeExchange::own_stays() const {
  const bool overlaps = coll_ != Coll::reduce && shape_ == Shape::reduce_scatter && in_place_;
  return access_.direct && !overlaps && shape_ != Shape::scan;
}

Status NodeExchange::lay_out(uint64_t index) {
  const uint64_t saved = index_;
  index_ = index;
  const int me = group_.rank();
  const uint64_t round = first_round_ + index;
  std::byte* lane = group_.in_lane(me, round, large_);
  const uint64_t begin = index * piece_count_;
  Status status;
  if (shape_ == Shape::gather) {
    // In place, the own block lies where its result belongs.
    const uint64_t offset = in_place_ ? output_offset_of(me) : 0;
    const bool root_keeps = coll_ == Coll::gather && me == root_ && (in_place_ || own_stays());
    const bool listens = coll_ == Coll::bcast && me != root_;
    if (!root_keeps && !listens)
      status = copy(lane, send_ + (offset + begin) * extent_, piece_of(count_of(me)) * extent_);
  } else if (shape_ == Shape::scan) {
    status = copy(lane, send_ + begin * extent_, piece_of(count_) * extent_);
  } else {
    for (int r = 0; r < group_.nranks() && status.ok(); ++r) {
      if (!gives(me, r) || (r == me && own_stays())) continue;
      status =
          copy(lane + lane_offset_of(r) * extent_, send_ + (input_offset_of(r) + begin) * extent_,
               piece_of(count_of(r)) * extent_);
    }
  }
  index_ = saved;
  TUTTI_TRY(status);
  group_.publish_in(round);
  laid_out_ = index + 1;
  return {};
}

Status NodeExchange::take_copies() {
  const int me = group_.rank();
  const uint64_t round = first_round_ + index_;
  const uint64_t begin = index_ * piece_count_;
  for (int i = 0; i < group_.nranks(); ++i) {
    // Each rank begins with another peer.
    const int r = (me + i) % group_.nranks();
    const bool gather = shape_ == Shape::gather;
    if (!gives(r, me) || (r == me && in_place_)) continue;
    const uint64_t count = piece_of(gather ? count_of(r) : count_of(me));
    const std::byte* from = group_.in_lane(r, round, large_) + lane_offset_of(me) * extent_;
    if (r == me && own_stays())
      from = send_ + ((gather ? 0 : input_offset_of(me)) + begin) * extent_;
    TUTTI_TRY(copy(recv_ + (output_offset_of(r) + begin) * extent_, from, count * extent_));
  }
  return {};
}

Status NodeExchange::take_reduction() {
  const int me = group_.rank();
  const uint64_t round = first_round_ + index_;
  const uint64_t begin = index_ * piece_count_;
  const bool scan = shape_ == Shape::scan;
  const uint64_t count = piece_of(count_of(me));
  const int nparts = !scan ? group_.nranks() : coll_ == Coll::scan ? me + 1 : me;
  if (count == 0 || nparts == 0 || !gives(me, me)) return {};
  std::array<const void*, max_members> parts;
  for (int r = 0; r < nparts; ++r)
    parts[static_cast<size_t>(r)] = group_.in_lane(r, round, large_) + lane_offset_of(me) * extent_;
  if (!scan && own_stays())
    parts[static_cast<size_t>(me)] = send_ + (input_offset_of(me) + begin) * extent_;
  std::byte* result = recv_ + begin * extent_;
  if (access_.direct) {
    reducer_->many(result, parts.data(), nparts, count);
    return {};
  }
  std::byte* lane = group_.out_lane(me, round, large_);
  reducer_->many(lane, parts.data(), nparts, count);
  return copy(result, lane, count * extent_);
}

Status NodeExchange::take() {
  return reducer_ == nullptr ? take_copies() : take_reduction();
}

Poll NodeExchange::poll(bool all_laid_out) {
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
        // Before the next piece is laid out: a peer that sees that believes this one taken.
        if (Status status = take(); !status.ok()) return Poll::failed(status);
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

const char* NodeExchange::phase() const {
  switch (phase_) {
    case Phase::input:
      return "laying out";
    case Phase::wait_in:
      return "waiting for input";
    case Phase::done:
      return "done";
  }
  return "";
}

}  // namespace tutti::shm
