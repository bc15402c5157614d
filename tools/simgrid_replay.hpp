// The schedules of all ranks in SimGrid: a second opinion on the cost model's own replay, in which
// messages share links instead of taking turns.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.hpp"
#include "sched/schedule.hpp"
#include "topo/topology.hpp"
#include "tune/cost.hpp"

namespace tutti {

// Ranks that a platform is made for at most: it has a route between any two.
inline constexpr int simgrid_most_ranks = 512;

// When the last step of all ranks ends, on a platform made of the topology and the model: a core and a
// memory for each rank, links in and out of them, and a link each way for every NIC. A process can run
// one simulation, so each runs in a child. `internal` if that fails.
Result<double> simgrid_makespan_ns(std::span<const Schedule> schedules, const Topology& topology,
                                   const CostModel& model, uint64_t element_bytes);

}  // namespace tutti
