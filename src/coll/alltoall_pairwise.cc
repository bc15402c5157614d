// Pairwise alltoall: at step s rank r exchanges blocks with rank s - r, so partners are each
// other's. Steps P; bytes sent a rank n(P-1)/P of its whole. Best for long blocks. Blocks of no
// length move as empty messages (alltoallv_sparse leaves them out). Source: R. Thakur, R.
// Rabenseifner, W. Gropp, IJHPCA 19(1), 2005, with partners as in a round-robin tournament, so that
// an exchange in place needs room for the blocks in flight only.
#include "coll/phases.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::alltoall, Coll::alltoallv, Coll::alltoallw};
constexpr Param parameters[] = {
    {"window", Param::Unit::number, 8, 1, 256, "Exchanges in flight from a rank."}};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  return pairwise_exchange(problem, place.rank, place.nranks(), place.params[0], false, builder);
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  const double window = static_cast<double>(params[0]);
  Estimate e;
  s.pairs(e, s.ranks / window, s.bytes * (1 - 1 / s.ranks), s.near * (1 - s.near / s.ranks));
  return e;
}

}  // namespace

extern const Algorithm alltoall_pairwise{"pairwise",  "Every pair exchanges directly; long blocks.",
                                         collectives, parameters,
                                         applies,     estimate,
                                         generate};

}  // namespace tutti
