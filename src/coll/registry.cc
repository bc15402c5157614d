#include "coll/registry.hpp"

#include <iterator>

#include "base/log.hpp"
#include "sched/stage.hpp"
#include "sched/widen.hpp"

namespace tutti {

#define TUTTI_ALGORITHM(name) extern const Algorithm name;
#include "coll/algorithms.def"
#undef TUTTI_ALGORITHM

namespace {

constexpr const Algorithm* table[] = {
#define TUTTI_ALGORITHM(name) &name,
#include "coll/algorithms.def"
#undef TUTTI_ALGORITHM
};

}  // namespace

std::span<const Algorithm* const> algorithms() {
  return table;
}

const Algorithm* find_algorithm(Coll coll, std::string_view scheme) {
  for (const Algorithm* algorithm : table)
    if (algorithm->serves(coll) && scheme == algorithm->scheme) return algorithm;
  return nullptr;
}

Status generate(const Algorithm& algorithm, const Problem& problem, const Place& place,
                Schedule& out) {
  out.steps.clear();
  out.after.clear();
  out.groups.clear();
  Extent size = extent(problem, place.rank, place.nranks());
  out.input_count = size.input;
  out.output_count = size.output;
  out.scratch_count = 0;
  out.wide_count = 0;
  ScheduleBuilder builder(out, place.rank, place.nranks());
  Problem narrow = problem;
  narrow.agreed.wide = false;
  Status status = algorithm.generate(narrow, place, builder);
  if (status.ok() && problem.agreed.wide) widen(problem, out);
  if (status.ok()) stage(problem.local, out);
  if (!status.ok())
    TUTTI_ERROR("coll", "no schedule for {} by {}, {} ranks, {} elements: {}",
                name(problem.agreed.coll), algorithm.scheme, place.nranks(), problem.agreed.count,
                status.text());
  return status;
}

}  // namespace tutti
