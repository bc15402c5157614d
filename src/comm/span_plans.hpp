// SpanPlans: schedules of a communicator's calls, each with the executor that runs it, kept by the
// signature of the call. Bounded; the one not used for longest goes first. One call runs at a time.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "coll/cache.hpp"
#include "engine/executor.hpp"
#include "tune/select.hpp"

namespace tutti {

struct SpanPlan {
  std::shared_ptr<const Schedule> schedule;
  std::unique_ptr<Executor> executor;
};

class SpanPlans {
 public:
  struct Ends {
    Transport* transport = nullptr;
    GroupRunner* groups = nullptr;  // missing where this rank is alone on its node
    const Topology* topology = nullptr;
    int rank = 0;
    const std::vector<std::string>* rank_texts = nullptr;
  };
  explicit SpanPlans(Ends ends) : ends_(ends) {}

  // Valid until the next call.
  Result<SpanPlan*> get(const Choice& choice, const Problem& problem);

 private:
  static constexpr size_t schedule_bytes = size_t{4} << 20;
  static constexpr size_t plan_limit = 64;

  Ends ends_;
  ScheduleCache schedules_{schedule_bytes};
  std::list<SpanPlan> plans_;  // latest used first
  std::unordered_map<const Schedule*, std::list<SpanPlan>::iterator> known_;
};

}  // namespace tutti
