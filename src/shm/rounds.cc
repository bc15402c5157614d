#include "shm/rounds.hpp"

#include <cstring>

namespace tutti::shm {

namespace {

// Polls between looks at every member's abort word; see node_group.cc.
constexpr uint32_t polls_between_abort_looks = 64;

// Where a padded pair has its index: aligned to its own size.
constexpr size_t pair_index_offset(Dtype dtype) {
  const size_t value_bytes = info(dtype).bytes - sizeof(int32_t);
  return (value_bytes + 3) / 4 * 4;
}

}  // namespace

void Rounds::take_buffers(const Agreed& agreed, const Local& local, const Access& access) {
  access_ = access;
  // At the root of a scatter in place there is no recv.
  const bool in_recv = local.in_place && local.recv != nullptr;
  send_ = static_cast<const std::byte*>(in_recv ? local.recv : local.send);
  recv_ = static_cast<std::byte*>(local.recv);
  in_place_ = local.in_place;
  dtype_ = agreed.dtype;
  extent_ = info(agreed.dtype).extent;
  laid_out_ = 0;
  index_ = 0;
  cursor_ = 0;
  first_round_ = group_.next_round();
}

bool Rounds::lay_out_first() {
  if (pieces_ == 0 || !access_.direct) return false;
  return lay_out(0).ok();
}

Poll Rounds::waiting() {
  if (++looks_ % polls_between_abort_looks == 0)
    if (Code code = group_.aborted(); code != Code::ok) {
      group_.abort(code);
      return Poll::failed(code);
    }
  return Poll::busy();
}

bool Rounds::all_in(uint64_t round) {
  for (; cursor_ < group_.nranks(); ++cursor_)
    if (!group_.arrived_in(cursor_, round)) return false;
  return true;
}

bool Rounds::all_reduced(uint64_t round) {
  for (; cursor_ < group_.nranks(); ++cursor_)
    if (!group_.arrived_reduced(cursor_, round)) return false;
  return true;
}

Status Rounds::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return {};
  if (access_.direct) {
    std::memcpy(to, from, bytes);
    return {};
  }
  return access_.copy(access_.context, to, from, bytes);
}

Status Rounds::give(std::byte* to, const std::byte* from, uint64_t count) {
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

}  // namespace tutti::shm
