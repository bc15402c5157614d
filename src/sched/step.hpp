// One step of a schedule, and the places it reads and writes.
//
// A schedule is a value: what one rank does in one collective call, as a graph of steps. Nothing
// here acts. The engine runs it, verify proves it, print shows it, the simulator times it.
#pragma once

#include <cstdint>

#include "core/types.hpp"

namespace tutti {

// Input: what the call reads (equals output when in place). Scratch: the schedule's own. Wide: the
// schedule's own, of fp32 elements where those of the call have 16 bits: for partial sums. Copies
// between wide and other places convert; the operands of a reduction and both ends of a message are
// all wide or none.
enum class Space : uint8_t { input, output, scratch, wide };
inline constexpr size_t space_count = 4;

// A range of elements of the call's dtype.
struct Ref {
  Space space = Space::input;
  uint64_t offset = 0;
  uint64_t count = 0;
  friend bool operator==(const Ref&, const Ref&) = default;
};

enum class StepKind : uint8_t {
  send,    // `from` to rank `peer`
  recv,    // from rank `peer` into `to`
  copy,    // `to` = `from`
  reduce,  // `to` = op(`from`, `with`); `from` is the part of the lower ranks
  group,   // an atomic collective of `Schedule::groups[peer]`: reads `from`, writes `to`
};

// Steps that must be finished first: `after_count` step numbers at Schedule::after[after_begin].
struct Step {
  StepKind kind = StepKind::copy;
  int32_t peer = -1;
  Ref from;
  Ref with;
  Ref to;
  // A send matches the recv of equal (sender, receiver, tag); in one call each such triple occurs
  // once, so no order of posting matters. Group steps match by (group, tag).
  uint32_t tag = 0;
  uint32_t after_begin = 0;
  uint32_t after_count = 0;
};

// Which kind of hardware a group step stands for; the engine maps it to what can run it.
enum class Level : uint8_t { shared_gpu, nvlink, node, rail, fabric };

}  // namespace tutti
