#include "comm/span_plans.hpp"

namespace tutti {

Result<SpanPlan*> SpanPlans::get(const Choice& choice, const Problem& problem) {
  const Place place{ends_.rank, *ends_.topology, choice.params};
  auto schedule = schedules_.get(*choice.algorithm, problem, place);
  TUTTI_TRY(schedule.status());
  if (auto found = known_.find(schedule->get()); found != known_.end()) {
    plans_.splice(plans_.begin(), plans_, found->second);
    return &plans_.front();
  }
  Executor::Places places;
  places.schedule = schedule->get();
  places.transport = ends_.transport;
  places.groups = ends_.groups;
  places.extent_bytes = info(problem.agreed.dtype).extent;
  places.rank_text = [texts = ends_.rank_texts](int rank) {
    return (*texts)[static_cast<size_t>(rank)];
  };
  auto executor = Executor::open(std::move(places));
  TUTTI_TRY(executor.status());
  if (plans_.size() == plan_limit) {
    known_.erase(plans_.back().schedule.get());
    plans_.pop_back();
  }
  plans_.push_front({std::move(*schedule), std::move(*executor)});
  known_.emplace(plans_.front().schedule.get(), plans_.begin());
  return &plans_.front();
}

}  // namespace tutti
