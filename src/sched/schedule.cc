#include "sched/schedule.hpp"

#include <algorithm>

namespace tutti {

ScheduleBuilder::ScheduleBuilder(Schedule& schedule, int rank, int nranks) : schedule_(schedule) {
  schedule_.rank = rank;
  schedule_.nranks = nranks;
}

ScheduleBuilder::Id ScheduleBuilder::push(Step step, std::span<const Id> after) {
  auto& all = schedule_.after;
  step.after_begin = static_cast<uint32_t>(all.size());
  for (Id id : after)
    if (id != none) all.push_back(id);
  const auto begin = all.begin() + step.after_begin;
  std::sort(begin, all.end());
  all.erase(std::unique(begin, all.end()), all.end());
  step.after_count = static_cast<uint32_t>(schedule_.after.size()) - step.after_begin;
  schedule_.steps.push_back(step);
  return static_cast<Id>(schedule_.steps.size() - 1);
}

ScheduleBuilder::Id ScheduleBuilder::send(int peer, Ref from, std::span<const Id> after,
                                          uint32_t tag) {
  Step step;
  step.kind = StepKind::send;
  step.peer = peer;
  step.from = from;
  step.tag = tag;
  return push(step, after);
}

ScheduleBuilder::Id ScheduleBuilder::recv(int peer, Ref to, std::span<const Id> after,
                                          uint32_t tag) {
  Step step;
  step.kind = StepKind::recv;
  step.peer = peer;
  step.to = to;
  step.tag = tag;
  return push(step, after);
}

ScheduleBuilder::Id ScheduleBuilder::copy(Ref from, Ref to, std::span<const Id> after) {
  if (from.count == 0 && to.count == 0) return none;
  Step step;
  step.kind = StepKind::copy;
  step.from = from;
  step.to = to;
  return push(step, after);
}

ScheduleBuilder::Id ScheduleBuilder::reduce(Ref lower, Ref higher, Ref to,
                                            std::span<const Id> after) {
  if (lower.count == 0 && higher.count == 0 && to.count == 0) return none;
  Step step;
  step.kind = StepKind::reduce;
  step.from = lower;
  step.with = higher;
  step.to = to;
  return push(step, after);
}

ScheduleBuilder::Id ScheduleBuilder::group(Group group, Ref from, Ref to, std::span<const Id> after,
                                           uint32_t tag) {
  Step step;
  step.kind = StepKind::group;
  step.from = from;
  step.to = to;
  step.tag = tag;
  // Chunks of one phase share the contract.
  auto& groups = schedule_.groups;
  auto at = std::find(groups.begin(), groups.end(), group);
  step.peer = static_cast<int32_t>(at - groups.begin());
  if (at == groups.end()) groups.push_back(std::move(group));
  return push(step, after);
}

ScheduleBuilder::Id ScheduleBuilder::send(int peer, Ref from, std::initializer_list<Id> after,
                                          uint32_t tag) {
  return send(peer, from, std::span<const Id>(after.begin(), after.size()), tag);
}
ScheduleBuilder::Id ScheduleBuilder::recv(int peer, Ref to, std::initializer_list<Id> after,
                                          uint32_t tag) {
  return recv(peer, to, std::span<const Id>(after.begin(), after.size()), tag);
}
ScheduleBuilder::Id ScheduleBuilder::copy(Ref from, Ref to, std::initializer_list<Id> after) {
  return copy(from, to, std::span<const Id>(after.begin(), after.size()));
}
ScheduleBuilder::Id ScheduleBuilder::reduce(Ref lower, Ref higher, Ref to,
                                            std::initializer_list<Id> after) {
  return reduce(lower, higher, to, std::span<const Id>(after.begin(), after.size()));
}

ScheduleBuilder::Id ScheduleBuilder::repeat(const Step& step, std::span<const Group> groups,
                                            Ref from, Ref with, Ref to, std::span<const Id> after) {
  switch (step.kind) {
    case StepKind::send:
      return send(step.peer, from, after, step.tag);
    case StepKind::recv:
      return recv(step.peer, to, after, step.tag);
    case StepKind::copy:
      return step.to.count == 0 ? join(after) : copy(from, to, after);
    case StepKind::reduce:
      return reduce(from, with, to, after);
    case StepKind::group:
      return group(groups[static_cast<size_t>(step.peer)], from, to, after, step.tag);
  }
  return none;
}

ScheduleBuilder::Id ScheduleBuilder::join(std::span<const Id> after) {
  Id only = none;
  for (Id id : after) {
    if (id == none || id == only) continue;
    if (only == none) {
      only = id;
      continue;
    }
    // Both ends are the same empty place, so nothing is done.
    Step step;
    step.kind = StepKind::copy;
    step.from = step.to = {Space::output, 0, 0};
    return push(step, after);
  }
  return only;
}

Ref ScheduleBuilder::scratch(uint64_t count) {
  Ref range{Space::scratch, schedule_.scratch_count, count};
  schedule_.scratch_count += count;
  return range;
}

}  // namespace tutti
