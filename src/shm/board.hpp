// Board: where the ranks of a node meet in a collective call.
//
// Every process owns the slots of its own segment, one for each communicator it is a member of, and
// writes only there; peers read. A slot holds
//   header[2]  this rank's announcement of call number s, in line s % 2: the gate, the mismatch
//              detector, the agreement on memory kinds, and for tiny payloads the transport;
//   in         how many rounds' input this rank has laid out (see node_group.hpp);
//   reduced    how many rounds' slices this rank has reduced;
//   lanes      where the bytes lie.
// Two headers are enough: a rank that posts call s + 2 has seen every peer's s + 1, so every peer
// has finished reading s. The same holds for the two halves of a lane.
//
// Slots are recycled by the owner once every member has released them (Comm_free is local, and a
// slow peer may still be reading).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/status.hpp"
#include "shm/segment.hpp"

namespace tutti::shm {

inline constexpr size_t line_bytes = 64;
// What fits beside the announcement in one cache line.
inline constexpr size_t inline_bytes = 40;

// Memory kind of a rank's buffers in a call, as announced.
enum class Reach : uint8_t {
  host,    // only the CPU reads and writes both buffers
  either,  // the CPU and the rank's group device do (managed memory)
  device,  // only the rank's group device does
  other,   // device memory that the group's kernels do not reach, or one buffer of each kind
};
constexpr uint32_t bit(Reach reach) {
  return 1u << static_cast<uint32_t>(reach);
}

struct alignas(line_bytes) Header {
  std::atomic<uint64_t> sequence;  // written last
  uint64_t signature;              // hash of what all ranks must agree on
  Reach reach;
  uint8_t inline_length;  // bytes of payload here; 0: none
  uint8_t laid_out;       // the first round is in the lane already
  uint8_t error;          // Code; non-zero ends the call on all ranks
  uint32_t detail;        // (coll, op, dtype) for a mismatch message
  std::byte payload[inline_bytes];
};
static_assert(sizeof(Header) == line_bytes);

struct Slot {
  Header header[2];
  alignas(line_bytes) std::atomic<uint64_t> in;
  alignas(line_bytes) std::atomic<uint64_t> reduced;
  // Set-up and end; seldom touched.
  alignas(line_bytes) std::atomic<uint32_t> ready;  // 0, or 1 + Code of this rank's set-up
  std::atomic<uint32_t> released;                   // members that will not look again
  std::atomic<uint32_t> aborted;                    // Code that ends every later call
  uint64_t counts[2];                               // elements of call s, for a mismatch message
  static constexpr size_t small_half_bytes = 8192;
  alignas(line_bytes) std::byte in_lane[2][small_half_bytes];
  std::byte out_lane[2][small_half_bytes];
};

// A larger lane for a communicator's pipeline; there are few.
struct LaneRange {
  uint64_t offset = 0;  // in the owner's segment; 0: none
  uint64_t bytes = 0;
};

// The slots and lanes of this process's own segment. One instance a process; any thread.
class SlotPool {
 public:
  // Makes the segment. lane_bytes: size of each large lane; 0 for none.
  static Result<std::unique_ptr<SlotPool>> create(size_t lane_bytes);

  struct Grant {
    uint32_t slot = 0;
    uint64_t slot_offset = 0;
    LaneRange lane;  // empty when all are taken: the small lane in the slot still serves
  };
  // A zeroed, resident slot for a communicator with that many members on the node. no_resource when
  // all are in use.
  Result<Grant> take(uint32_t members);
  // The owner is done. The slot comes back once all members have released it.
  void give_back(const Grant& grant, uint32_t members);

  const std::shared_ptr<Segment>& segment() const { return segment_; }
  static constexpr uint32_t slot_count = 1024;
  static constexpr uint32_t lane_count = 8;

 private:
  SlotPool(std::shared_ptr<Segment> segment, size_t lane_bytes);
  Slot* slot(uint32_t index) const;
  struct Use {
    uint32_t members = 0;  // 0: free
    bool given_back = false;
    int32_t lane = -1;
  };
  void recycle();

  std::mutex mutex_;
  std::shared_ptr<Segment> segment_;
  size_t lane_bytes_;
  std::unique_ptr<Use[]> uses_;
  bool lane_used_[lane_count] = {};
  uint32_t next_ = 0;
};

}  // namespace tutti::shm
