// Grafting: the schedule of a few ranks as a part of the schedule of all.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sched/schedule.hpp"

namespace tutti {

// Where the part goes.
struct Site {
  std::span<const int32_t> team;  // rank in the whole of each rank in the part
  Ref input;                      // the part's input, output and scratch in the whole
  Ref output;
  Ref scratch;                                 // part.scratch_count elements
  uint32_t tag = 0;                            // added to every tag
  std::span<const ScheduleBuilder::Id> after;  // before anything of the part
};

// Appends the part's steps. `ends` gets the steps after which all of it has finished: `site.after`
// itself if it has no steps. Group steps may not be in it.
void graft(ScheduleBuilder& builder, const Schedule& part, const Site& site,
           std::vector<ScheduleBuilder::Id>& ends);

}  // namespace tutti
