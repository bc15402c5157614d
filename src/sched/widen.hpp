// Widen: a schedule of a reduction, made for its own elements, with partial results as fp32.
#pragma once

#include "core/problem.hpp"
#include "sched/schedule.hpp"

namespace tutti {

// Moves everything that the schedule does to wide places: what the rank contributes is converted at
// the start, the result at the end, both in pieces, so that the first steps need not wait for all of
// it. The messages are the same, of fp32 elements.
void widen(const Problem& problem, Schedule& schedule);

}  // namespace tutti
