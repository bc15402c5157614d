// Segment: one process's memory that the processes of its node can map.
//
// Each process makes one, without a name in any file system: peers open it through
// /proc/<pid>/fd/<fd>, and a nonce in its first bytes proves that it is the one that was announced
// (a pid means something else in another pid namespace). So a node is the ranks that proved they
// map one segment, whatever their host names say, and nothing stays behind when a process dies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.hpp"

namespace tutti::shm {

// What a process announces of its segment; plain bytes, equal for everyone.
struct SegmentName {
  int32_t pid = 0;
  int32_t fd = -1;
  uint64_t bytes = 0;
  uint64_t nonce[2] = {0, 0};
  friend bool operator==(const SegmentName&, const SegmentName&) = default;
};

// A mapping of an own or a peer's segment, unmapped with the last reference.
class Segment {
 public:
  // Makes this process's own. no_memory when the kernel refuses; bytes is rounded up to pages.
  static Result<std::shared_ptr<Segment>> create(size_t bytes);
  // Maps a peer's, or returns the mapping that this process already has. peer_lost when it cannot
  // be opened or is not the announced one; nothing is logged: the caller knows whether that
  // matters.
  static Result<std::shared_ptr<Segment>> map(const SegmentName& name);

  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::byte* at(size_t offset) const { return base_ + offset; }
  const SegmentName& name() const { return name_; }
  // Bytes at the start that belong to the segment itself.
  static constexpr size_t header_bytes = 4096;

 private:
  Segment(const SegmentName& name, std::byte* base, bool own)
      : name_(name), base_(base), own_(own) {}
  SegmentName name_;
  std::byte* base_;
  bool own_;
};

// Makes pages resident and, where the kernel agrees, huge: the first touch of a page costs more
// than a small collective.
void pretouch(void* memory, size_t bytes);

}  // namespace tutti::shm
