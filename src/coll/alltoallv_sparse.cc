// Sparse alltoallv: as alltoall_pairwise, but pairs that have nothing for each other exchange
// nothing. MPI makes what a rank sends equal what its peer receives, so both ends of a pair know it
// without a word between them. Steps: the most partners of any rank; bytes sent a rank: its blocks.
// Best for neighbour exchanges. Source: T. Hoefler, C. Siebert, A. Lumsdaine, "Scalable
// communication protocols for dynamic sparse data exchange", PPoPP 2010, for the case where both
// ends know the sizes.
#include "coll/phases.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::alltoallv, Coll::alltoallw};
constexpr Param parameters[] = {
    {"window", Param::Unit::number, 32, 1, 256, "Exchanges in flight from a rank."}};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  return pairwise_exchange(problem, place.rank, place.nranks(), place.params[0], true, builder);
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  const double window = static_cast<double>(params[0]);
  Estimate e;
  s.pairs(e, s.ranks / window, s.bytes * (1 - 1 / s.ranks), s.near * (1 - s.near / s.ranks));
  return e;
}

}  // namespace

extern const Algorithm alltoallv_sparse{
    "sparse",    "Only pairs with data exchange; few neighbours.",
    collectives, parameters,
    applies,     estimate,
    generate};

}  // namespace tutti
