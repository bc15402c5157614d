// Binomial broadcast: the root sends to the farthest subtree first; every rank passes on what it
// got. Steps ceil(log2 P); bytes sent by the root n log2 P. Best for short messages. Source: R.
// Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005.
#include "coll/phases.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::bcast};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  knomial_bcast(builder, place.rank, place.nranks(), problem.agreed.root, 2,
                output_ref(0, problem.agreed.count), no_step, 0);
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  Estimate e;
  e.near = {s.log_near, s.log_near * s.bytes};
  e.far = {s.log_far, s.log_far * s.bytes};
  return e;
}

}  // namespace

extern const Algorithm bcast_binomial{
    "binomial", "Binomial tree; short messages.", collectives, {}, applies, estimate, generate};

}  // namespace tutti
