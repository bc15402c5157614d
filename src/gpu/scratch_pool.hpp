// Who has which part of the device memory for packed buffers: one allocation of a process and device, made
// with the lanes, because an allocation later may wait for kernels that wait for peers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tutti::gpu {

class ScratchPool {
 public:
  explicit ScratchPool(uint64_t bytes) : bytes_(bytes) {}

  // Offset of the first gap that is large enough; aligned for any word.
  std::optional<uint64_t> take(uint64_t bytes) {
    constexpr uint64_t alignment = 256;
    bytes = (bytes + alignment - 1) / alignment * alignment;
    uint64_t at = 0;
    size_t i = 0;
    for (; i < used_.size(); ++i) {
      if (used_[i].begin - at >= bytes) break;
      at = used_[i].end;
    }
    if (bytes > bytes_ - at) return std::nullopt;
    used_.insert(used_.begin() + static_cast<ptrdiff_t>(i), {at, at + bytes});
    return at;
  }
  void give_back(uint64_t offset) {
    for (size_t i = 0; i < used_.size(); ++i)
      if (used_[i].begin == offset) {
        used_.erase(used_.begin() + static_cast<ptrdiff_t>(i));
        return;
      }
  }

 private:
  struct Range {
    uint64_t begin;
    uint64_t end;
  };
  std::vector<Range> used_;  // in order
  uint64_t bytes_;
};

// With the lanes' 48 MiB it stays within law 11.
inline constexpr uint64_t scratch_bytes = uint64_t{12} << 20;

}  // namespace tutti::gpu
