// The lane: the scratch that a rank gives to a group, and into which its peers push.
//
// Layout, equal on all members (every peer computes addresses in another's lane):
//   header    one 128-byte line a word: abort, counter, nonce
//   flags     five tables [source rank][slot] of one 32-byte sector each (one sector = one NVLink
//   packet) LL area   [epoch parity][source] inboxes of 16-byte lines: 12 bytes of data, 4 bytes of
//   epoch ring      chunk slots of the push engine, cut into one ring a source
// A rank writes into a peer's lane only words that the table below gives to it, and reads only its
// own lane: pushes are faster than pulls (both directions busy) and need no export of user memory.
//
// Everything here is arithmetic, shared by the host code, the kernels and the emulation.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define TUTTI_ON_BOTH __host__ __device__
#else
#define TUTTI_ON_BOTH
#endif

namespace tutti::gpu {

inline constexpr uint32_t max_ranks = 8;

inline constexpr uint64_t lane_abort_offset = 0;  // u32: not 0 = leave; written by any member
inline constexpr uint64_t lane_counter_offset =
    128;                                            // u32: CTAs of this call that finished, then 0
inline constexpr uint64_t lane_nonce_offset = 256;  // u64: proves that the right memory was mapped
inline constexpr uint64_t lane_header_bytes = 4096;
inline constexpr uint64_t flag_bytes = 32;
inline constexpr uint64_t ll_line_bytes = 16;
inline constexpr uint64_t ll_data_bytes = 12;
inline constexpr uint64_t smallest_lane_bytes = 256 << 10;

// Tables of flags. Each word holds a chunk's number in the life of the group + 1: 64 bits, so that
// a slot which lies idle for long never meets a wrapped number.
enum class Flag : uint32_t {
  pushed,    // from source: the chunk for me to reduce or drain lies in the slot
  consumed,  // from source: it has read my chunk out of its slot
  spread,    // from owner: its result chunk lies in the slot
  drained,   // from source: it has read my result chunk
  local,     // own: chunk for that peer was read out of the send buffer
};
inline constexpr uint32_t flag_tables = 5;

struct Layout {
  uint64_t flag_offset = 0;
  uint64_t ll_offset = 0;
  uint64_t ll_inbox_bytes = 0;  // of one source and parity
  uint64_t ring_offset = 0;
  uint64_t ring_bytes = 0;
  uint32_t slots_max = 0;  // slots that the flag tables have room for
};

// Cuts a lane. `lane_bytes` is the smallest lane of the members.
constexpr Layout lane_layout(uint64_t lane_bytes, uint32_t nranks) {
  Layout layout;
  // A sixteenth of the slots a lane of 16 KiB chunks would hold keeps the tables under 4 % of it.
  uint64_t slots = lane_bytes / (32 << 10);
  layout.slots_max = static_cast<uint32_t>(slots < 16 ? 16 : slots > 512 ? 512 : slots);
  layout.flag_offset = lane_header_bytes;
  layout.ll_offset = layout.flag_offset + flag_bytes * flag_tables * max_ranks * layout.slots_max;
  // LL serves to 2 MiB at two ranks: 2.7 MiB of lines, twice. A small lane gives it a third.
  uint64_t area = lane_bytes / 3;
  if (area > (6 << 20)) area = 6 << 20;
  layout.ll_inbox_bytes = area / (2 * (nranks - 1)) / 4096 * 4096;
  layout.ring_offset = layout.ll_offset + 2 * (nranks - 1) * layout.ll_inbox_bytes;
  layout.ring_bytes = (lane_bytes - layout.ring_offset) / 4096 * 4096;
  return layout;
}

// What must be zero before peers may write: the whole of it but the ring.
constexpr uint64_t lane_cleared_bytes(const Layout& layout) {
  return layout.ring_offset;
}

// Index of `source` among the inboxes and rings of `owner`: a rank has none for itself.
TUTTI_ON_BOTH constexpr uint32_t source_index(uint32_t owner, uint32_t source) {
  return source < owner ? source : source - 1;
}

}  // namespace tutti::gpu
