// How a call is launched: kernel, grid and chunking, a pure function of facts equal on all members.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "core/problem.hpp"
#include "gpu/args.hpp"
#include "gpu/lane.hpp"
#include "gpu/tuning.hpp"

namespace tutti::gpu {

enum class KernelId : uint32_t {
#define TUTTI_KERNEL(name, threads, body) name,
#include "gpu/kernels.def"
#include "gpu/kernels_move.def"
#undef TUTTI_KERNEL
  count
};
inline constexpr uint32_t kernel_count = static_cast<uint32_t>(KernelId::count);
const char* name(KernelId id);
uint32_t most_threads(KernelId id);

// Fewest co-resident CTAs that the engines work with: a CTA of each role, and one to spare.
inline constexpr uint32_t smallest_cta_budget = 4;

struct Plan {
  KernelId kernel = KernelId::count;
  uint32_t threads = 0;
  uint32_t ctas = 0;
  bool ll = false;
  uint32_t code = 0;
  uint64_t bytes = 0;  // of the vector or block
  // push engine
  uint64_t slice = 0;
  uint64_t ring_bytes = 0;
  uint32_t chunk = 0;
  uint32_t slots = 0;
  uint32_t push_ctas = 0;
  uint32_t reduce_ctas = 0;
  uint32_t drain_ctas = 0;
  uint64_t chunks = 0;  // by which the group's chunk number advances
};

// What is equal in all calls of a group.
struct PlanSpace {
  uint32_t nranks = 2;
  Layout layout;
  uint32_t cta_budget = smallest_cta_budget;
  const Tuning* tuning = &tuning_h200;
};

// Only for calls that native() accepts, with a count above 0.
Plan make_plan(const Agreed& agreed, const PlanSpace& space);

// Fills the part of the arguments that the plan fixes.
void apply_plan(const Plan& plan, KernelArgs& args);

}  // namespace tutti::gpu
