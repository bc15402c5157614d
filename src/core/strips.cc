#include "core/strips.hpp"

namespace tutti {

namespace {

// Runs of equal length at equal distances, cut so that no strip is longer than the bound.
void add(std::vector<Strip>& strips, const Run& first, int64_t stride, uint64_t count,
         uint64_t packed) {
  if (first.bytes > strip_bytes) {
    for (uint64_t i = 0; i < count; ++i)
      for (uint64_t at = 0; at < first.bytes; at += strip_bytes) {
        const uint64_t bytes = first.bytes - at < strip_bytes ? first.bytes - at : strip_bytes;
        const auto offset = first.offset + static_cast<int64_t>(i) * stride;
        strips.push_back({offset + static_cast<int64_t>(at), 0, packed + i * first.bytes + at,
                          static_cast<uint32_t>(bytes), 1});
      }
    return;
  }
  const uint64_t most = strip_bytes / first.bytes;
  for (uint64_t i = 0; i < count; i += most) {
    const uint64_t runs = count - i < most ? count - i : most;
    strips.push_back({first.offset + static_cast<int64_t>(i) * stride, stride,
                      packed + i * first.bytes, static_cast<uint32_t>(first.bytes),
                      static_cast<uint32_t>(runs)});
  }
}

}  // namespace

std::vector<Strip> make_strips(std::span<const Run> runs) {
  std::vector<Strip> strips;
  uint64_t packed = 0;
  for (size_t i = 0; i < runs.size();) {
    const Run& first = runs[i];
    size_t next = i + 1;
    int64_t stride = 0;
    if (next < runs.size() && runs[next].bytes == first.bytes) {
      stride = runs[next].offset - first.offset;
      while (next < runs.size() && runs[next].bytes == first.bytes &&
             runs[next].offset - runs[next - 1].offset == stride)
        ++next;
    }
    if (first.bytes != 0) add(strips, first, stride, next - i, packed);
    packed += first.bytes * (next - i);
    i = next;
  }
  return strips;
}

}  // namespace tutti
