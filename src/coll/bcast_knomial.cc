// k-nomial broadcast: a tree in which every rank sends to k-1 subtrees a level.
// Steps ceil(log_k P); bytes sent by the root (k-1) n log_k P. Best for short messages where
// latency counts more than the rate at which a rank sends. Source: R. Thakur, R. Rabenseifner, W.
// Gropp, IJHPCA 19(1), 2005, with a radix.
#include "coll/phases.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::bcast};
constexpr Param parameters[] = {
    {"radix", Param::Unit::number, 4, 2, 64, "Subtrees a level, and one."}};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  knomial_bcast(builder, place.rank, place.nranks(), problem.agreed.root,
                static_cast<int>(place.params[0]), output_ref(0, problem.agreed.count), no_step, 0);
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  const double k = static_cast<double>(params[0]), rounds = s.rounds(k);
  Estimate e;
  s.tree(e, rounds, rounds * (k - 1) * s.bytes);
  s.handle(e, rounds * (k - 1), 0);
  return e;
}

}  // namespace

extern const Algorithm bcast_knomial{
    "knomial", "Tree of radix k; short messages.", collectives, parameters, applies, estimate,
    generate};

}  // namespace tutti
