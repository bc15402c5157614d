// Schedules as text: for people, for Graphviz, and for LogGOPSim.
#pragma once

#include <span>
#include <string>

#include "base/status.hpp"
#include "sched/schedule.hpp"

namespace tutti {

// One line a step: "3 reduce output[0, 8) = input[0, 8) op scratch[0, 8) after 1 2".
std::string print_text(const Schedule& schedule);

// All ranks as one graph: a cluster a rank, an edge an `after`, a dashed edge a message.
std::string print_dot(std::span<const Schedule> schedules);

// All ranks in GOAL (T. Hoefler, C. Siebert, A. Lumsdaine, "Group Operation Assembly Language",
// ICPP 2009), which LogGOPSim replays. `calc_ns` is charged for each element copied or reduced.
// GOAL has no collectives: schedules with group steps are `unsupported`.
Result<std::string> print_goal(std::span<const Schedule> schedules, uint64_t element_bytes,
                               double calc_ns);

}  // namespace tutti
