// Knobs for measurements and tests, set by name: overrides of the tuning table (before a group
// connects, on all its members alike; 0 keeps the table), and refusals: k > 0 refuses the k-th use
// from now on.
#pragma once

#include <atomic>

#include "gpu/tuning.hpp"

namespace tutti::cuda {

// The table, or a copy with the overrides applied; lives on.
const gpu::Tuning* tuning_in_force();

struct Refusals {
  std::atomic<long> exports{0};
  std::atomic<long> imports{0};
  std::atomic<long> launches{0};
};
Refusals& refusals();
// Calls of groups that kernels took.
extern std::atomic<long> calls_started;
// True when this use is the one to refuse; says so in the log.
bool refuse(std::atomic<long>& countdown, const char* what);

}  // namespace tutti::cuda

// Sets a knob of knobs.cc; -1 when there is none of that name.
extern "C" __attribute__((visibility("default"))) int tutti_cuda_set(const char* knob, long value);
// A count of this process, by its name: calls that a lingering kernel took from the bell ("rung"), its
// launches ("launched"), rings that came too late for it ("missed"), and calls of groups that were started ("started"). -1 for other
// names.
extern "C" __attribute__((visibility("default"))) long tutti_cuda_get(const char* count);
