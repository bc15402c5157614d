#include "sched/graft.hpp"

namespace tutti {

namespace {

Ref moved(const Ref& ref, const Site& site) {
  const Ref& base = ref.space == Space::input    ? site.input
                    : ref.space == Space::output ? site.output
                                                 : site.scratch;
  return {base.space, base.offset + ref.offset, ref.count};
}

}  // namespace

void graft(ScheduleBuilder& builder, const Schedule& part, const Site& site,
           std::vector<ScheduleBuilder::Id>& ends) {
  using Id = ScheduleBuilder::Id;
  std::vector<Id> id_of(part.steps.size());
  std::vector<bool> followed(part.steps.size(), false);
  std::vector<Id> after;
  for (size_t i = 0; i < part.steps.size(); ++i) {
    const Step& step = part.steps[i];
    after.clear();
    for (uint32_t before : part.after_of(step)) {
      after.push_back(id_of[before]);
      followed[before] = true;
    }
    if (after.empty()) after.assign(site.after.begin(), site.after.end());
    // Parts have no group steps.
    if (step.kind == StepKind::group) {
      id_of[i] = ScheduleBuilder::none;
      continue;
    }
    Step here = step;
    if (step.kind == StepKind::send || step.kind == StepKind::recv) {
      here.peer = site.team[static_cast<size_t>(step.peer)];
      here.tag = site.tag + step.tag;
    }
    id_of[i] = builder.repeat(here, {}, moved(step.from, site), moved(step.with, site),
                              moved(step.to, site), after);
  }
  ends.clear();
  for (size_t i = 0; i < part.steps.size(); ++i)
    if (!followed[i]) ends.push_back(id_of[i]);
  if (part.steps.empty()) ends.assign(site.after.begin(), site.after.end());
}

}  // namespace tutti
