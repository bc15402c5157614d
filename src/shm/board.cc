#include "shm/board.hpp"

#include <cstring>
#include <new>

#include "base/log.hpp"

namespace tutti::shm {

namespace {

constexpr size_t round_up(size_t value, size_t to) {
  return (value + to - 1) / to * to;
}
constexpr size_t slot_stride = round_up(sizeof(Slot), 4096);
constexpr size_t slots_offset = Segment::header_bytes;
constexpr size_t lanes_offset =
    round_up(slots_offset + SlotPool::slot_count * slot_stride, size_t{2} << 20);
// Law 11: at most 64 MiB of shared memory a rank, resident or not.
static_assert(lanes_offset <= (size_t{48} << 20));

}  // namespace

SlotPool::SlotPool(std::shared_ptr<Segment> segment, size_t lane_bytes)
    : segment_(std::move(segment)), lane_bytes_(lane_bytes), uses_(new Use[slot_count]) {}

Result<std::unique_ptr<SlotPool>> SlotPool::create(size_t lane_bytes) {
  constexpr size_t most = ((size_t{64} << 20) - lanes_offset) / lane_count;
  lane_bytes = round_up(lane_bytes, 4096);
  if (lane_bytes > most) {
    TUTTI_WARN("shm", "TUTTI_SHM_LANE is {} bytes; {} lanes of at most {} fit: using that",
               lane_bytes, lane_count, most);
    lane_bytes = most / 4096 * 4096;
  }
  auto segment = Segment::create(lanes_offset + lane_count * lane_bytes);
  if (!segment.ok()) return segment.status();
  return std::unique_ptr<SlotPool>(new SlotPool(*segment, lane_bytes));
}

Slot* SlotPool::slot(uint32_t index) const {
  return std::launder(reinterpret_cast<Slot*>(segment_->at(slots_offset + index * slot_stride)));
}

void SlotPool::recycle() {
  for (uint32_t i = 0; i < slot_count; ++i) {
    Use& use = uses_[i];
    if (use.members == 0 || !use.given_back) continue;
    if (slot(i)->released.load(std::memory_order_acquire) < use.members) continue;
    if (use.lane >= 0) lane_used_[use.lane] = false;
    use = Use{};
  }
}

Result<SlotPool::Grant> SlotPool::take(uint32_t members) {
  std::lock_guard lock(mutex_);
  recycle();
  for (uint32_t tried = 0; tried < slot_count; ++tried) {
    const uint32_t index = (next_ + tried) % slot_count;
    if (uses_[index].members != 0) continue;
    next_ = index + 1;
    Use& use = uses_[index];
    use.members = members;
    Grant grant;
    grant.slot = index;
    grant.slot_offset = slots_offset + index * slot_stride;
    void* memory = segment_->at(grant.slot_offset);
    new (memory) Slot{};
    for (uint32_t lane = 0; lane_bytes_ != 0 && lane < lane_count; ++lane) {
      if (lane_used_[lane]) continue;
      lane_used_[lane] = true;
      use.lane = static_cast<int32_t>(lane);
      grant.lane = {lanes_offset + lane * lane_bytes_, lane_bytes_};
      pretouch(segment_->at(grant.lane.offset), grant.lane.bytes);
      break;
    }
    return grant;
  }
  return Code::no_resource;
}

void SlotPool::give_back(const Grant& grant, uint32_t members) {
  std::lock_guard lock(mutex_);
  Use& use = uses_[grant.slot];
  use.given_back = true;
  use.members = members;
  slot(grant.slot)->released.fetch_add(1, std::memory_order_acq_rel);
}

}  // namespace tutti::shm
