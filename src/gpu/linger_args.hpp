// What the host and a lingering kernel say to each other: plain structs for the host code, the
// kernels and the emulation. linger.hpp has the protocol.
#pragma once

#include <cstdint>

#include "gpu/args.hpp"
#include "gpu/lane.hpp"

namespace tutti::gpu {

// Groups of a process and device that its lingering kernel can serve; more than it has lanes.
inline constexpr uint32_t linger_slots = 8;

enum class LingerShape : uint32_t {
  allreduce,
  allreduce_wide,
  reduce_scatter,
  reduce_scatter_wide,
  allgather,
  leave,  // no call: the kernel shall end
};

// What is equal in all calls of a group; handed over with the launch.
struct LingerSlot {
  char* lane[max_ranks];
  Layout layout;
  uint32_t nranks;
  uint32_t rank;
  uint32_t* done;
  uint32_t* failed;
  const uint32_t* abort_word;
};

// One call: all that differs from the last one. On the bell each word travels in the low half of 64
// bits, under the number of the ring, so that the read that finds the bell rung has the whole command.
inline constexpr uint32_t command_words = 8;
struct LingerCommand {
  uint32_t word[command_words];
};

struct LingerArgs {
  LingerSlot slot[linger_slots];
  LingerCommand first;  // comes with the launch: no wait for the bell
  uint32_t ring;        // number of the first command
  uint64_t window_ns;
  const uint64_t* bell;
  uint64_t* left;
  uint64_t* relay;  // command_words in the device's memory: the bell of all CTAs but the first
};

TUTTI_ON_BOTH constexpr uint32_t next_ring(uint32_t ring) {
  return ring + 1 == 0 ? 1 : ring + 1;  // 0 is the bell that was never rung
}
// Whether a number was given after `last`, of numbers less than 2^31 rings apart.
TUTTI_ON_BOTH constexpr bool ring_after(uint32_t ring, uint32_t last) {
  return ring != 0 && static_cast<int32_t>(ring - last) > 0;
}

// The fields of a command. Bytes stay far under 2^32: the LL engine ends at a few MiB.
TUTTI_ON_BOTH inline LingerCommand make_command(const KernelArgs& args, LingerShape shape,
                                                uint32_t slot, uint32_t ctas) {
  const auto send = reinterpret_cast<uint64_t>(args.send);
  const auto recv = reinterpret_cast<uint64_t>(args.recv);
  return {{static_cast<uint32_t>(send), static_cast<uint32_t>(send >> 32),
           static_cast<uint32_t>(recv), static_cast<uint32_t>(recv >> 32),
           static_cast<uint32_t>(args.bytes),
           args.code | static_cast<uint32_t>(shape) << 8 | slot << 16 | ctas << 24, args.epoch,
           args.sequence}};
}
TUTTI_ON_BOTH constexpr LingerCommand leave_command() {
  return {{0, 0, 0, 0, 0, static_cast<uint32_t>(LingerShape::leave) << 8, 0, 0}};
}
TUTTI_ON_BOTH constexpr LingerShape shape_of(const LingerCommand& command) {
  return static_cast<LingerShape>(command.word[5] >> 8 & 0xff);
}
TUTTI_ON_BOTH constexpr uint32_t slot_of(const LingerCommand& command) {
  return command.word[5] >> 16 & 0xff;
}
TUTTI_ON_BOTH constexpr uint32_t ctas_of(const LingerCommand& command) {
  return command.word[5] >> 24;
}
TUTTI_ON_BOTH constexpr uint32_t bytes_of(const LingerCommand& command) {
  return command.word[4];
}
// Writes a command into the arguments of its group.
TUTTI_ON_BOTH inline void apply_command(const LingerCommand& command, KernelArgs& args) {
  const uint32_t* w = command.word;
  args.send = reinterpret_cast<const char*>(w[0] | static_cast<uint64_t>(w[1]) << 32);
  args.recv = reinterpret_cast<char*>(w[2] | static_cast<uint64_t>(w[3]) << 32);
  args.bytes = w[4];
  args.code = w[5] & 0xff;
  args.epoch = w[6];
  args.sequence = w[7];
}

}  // namespace tutti::gpu
