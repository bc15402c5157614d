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
    const std::span<const Id> list(after);
    const Ref from = moved(step.from, site), to = moved(step.to, site);
    switch (step.kind) {
      case StepKind::send:
        id_of[i] = builder.send(site.team[static_cast<size_t>(step.peer)], from, list,
                                site.tag + step.tag);
        break;
      case StepKind::recv:
        id_of[i] =
            builder.recv(site.team[static_cast<size_t>(step.peer)], to, list, site.tag + step.tag);
        break;
      case StepKind::copy:
        id_of[i] = step.to.count == 0 ? builder.join(list) : builder.copy(from, to, list);
        break;
      case StepKind::reduce:
        id_of[i] = builder.reduce(from, moved(step.with, site), to, list);
        break;
      case StepKind::group:
        id_of[i] = ScheduleBuilder::none;
        break;
    }
  }
  ends.clear();
  for (size_t i = 0; i < part.steps.size(); ++i)
    if (!followed[i]) ends.push_back(id_of[i]);
  if (part.steps.empty()) ends.assign(site.after.begin(), site.after.end());
}

}  // namespace tutti
