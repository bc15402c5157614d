// Who has which part of the lane memory of a process and device.
//
// One allocation, made by the first group and exported once: a large lane, then small ones. A first
// communicator (mostly the world) gets the large one; groups beyond the last small lane are
// refused, so that the footprint stays the same however many communicators there are. A group that
// was aborted does not give its lane back: stray writes of a peer's late kernel may still come.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gpu/lane.hpp"

namespace tutti::gpu {

struct Lane {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

class LanePool {
 public:
  LanePool() = default;
  LanePool(uint64_t large_bytes, uint64_t small_bytes, uint32_t small_count) {
    if (large_bytes < smallest_lane_bytes) large_bytes = smallest_lane_bytes;
    large_bytes = (large_bytes + 4095) / 4096 * 4096;
    if (small_bytes > large_bytes) small_bytes = large_bytes;
    free_.push_back({0, large_bytes});
    for (uint32_t i = 0; i < small_count; ++i)
      free_.push_back({large_bytes + i * small_bytes, small_bytes});
    total_bytes_ = large_bytes + small_count * small_bytes;
  }

  uint64_t total_bytes() const { return total_bytes_; }

  std::optional<Lane> take() {
    size_t best = free_.size();
    for (size_t i = 0; i < free_.size(); ++i)
      if (best == free_.size() || free_[i].bytes > free_[best].bytes) best = i;
    if (best == free_.size()) return std::nullopt;
    Lane lane = free_[best];
    free_.erase(free_.begin() + static_cast<ptrdiff_t>(best));
    return lane;
  }
  void give_back(Lane lane) { free_.push_back(lane); }

 private:
  std::vector<Lane> free_;
  uint64_t total_bytes_ = 0;
};

inline constexpr uint64_t default_lane_bytes = uint64_t{40} << 20;
inline constexpr uint64_t small_lane_bytes = 2 << 20;
inline constexpr uint32_t small_lane_count = 4;

}  // namespace tutti::gpu
