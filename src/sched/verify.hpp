// Verify: proof that the schedules of all ranks together perform a collective, in every order in
// which an engine may run them.
//
// Values are symbols, so one run proves the schedule for all data: a range of elements is a term
// (which ranks' contributions, combined in which order) and an index into the contribution. Since
// no two steps that are not ordered by `after` touch one range with a writer among them, the
// outcome does not depend on the order, and one simulated order stands for all.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/problem.hpp"
#include "sched/schedule.hpp"

namespace tutti {

// What a schedule must keep; each has a mutation test that plants the fault.
enum class Rule : uint8_t {
  form,      // step kinds, peers, numbers in `after` lists
  bounds,    // ranges inside input, output, scratch
  shape,     // operands of equal length, not partly overlapping; nothing writes the input
  message,   // each send has its receive of the same size, and no (sender, receiver, tag) twice
  race,      // two unordered steps on one range, one of them writing
  deadlock,  // with sends that end only when their receive is posted
  uninitialized,  // a step reads what nothing has written
  contribution,   // each rank's contribution exactly once, element for element
  order,  // op(lower ranks' part, higher ranks' part); whole runs of ranks if op does not commute
  same_bits,  // one and the same expression on all ranks
  untouched,  // output outside the result is as it was
  group,      // members of a group step agree on its contract
  barrier,    // nobody leaves before everyone has entered
  precision,  // fp32 where that is agreed: nothing combines what was rounded to 16 bits
  placement,  // what lies on a device is touched by copies and group steps only
};
inline constexpr size_t rule_count = static_cast<size_t>(Rule::placement) + 1;
const char* name(Rule rule);

struct Verdict {
  bool proven = true;
  Rule rule = Rule::form;
  std::string text;  // what, where: "rank 3 step 7 ..."
};

// problems[r] and schedules[r] are rank r's.
Verdict verify(std::span<const Problem> problems, std::span<const Schedule> schedules);

}  // namespace tutti
