// Replay: how long the schedules of all ranks take on a cost model, step by step, with links that carry
// one message at a time. Slower and truer than the closed forms that select uses; tutti-sim and tests use
// it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "sched/schedule.hpp"
#include "topo/topology.hpp"
#include "tune/cost.hpp"

namespace tutti {

struct Replay {
  double makespan_ns = 0;
  std::vector<double> finish_ns;  // of each rank
  uint64_t messages_near = 0, messages_far = 0;
  uint64_t bytes_near = 0, bytes_far = 0;
};

// A message starts when both ends are posted, the sender's core has done its part and the links out of
// the sender and into the receiver are free: their own inside a node, those of each end's GPU outside, or
// of its node. It ends when the receiver's core has done its part. A core does one thing at a time, and so
// does a GPU, which reduces and copies for its ranks. `internal` if the schedules do not run to their end
// (verify says why).
Result<Replay> replay(std::span<const Schedule> schedules, const Topology& topology,
                      const CostModel& model, uint64_t element_bytes);

}  // namespace tutti
