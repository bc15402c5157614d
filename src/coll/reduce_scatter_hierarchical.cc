// Hierarchical reduce-scatter: inside each node the vector is reduced to slices, one a rail; each is
// reduced and scattered among the nodes by its owners, side by side, and handed to the ranks whose
// blocks it holds.
// Steps: those of the levels; bytes that leave a node: n(m-1)/m of the whole for m nodes, spread over
// its NICs. Best on several nodes. Source: the first half of NCCL's and UCC cl/hier's hierarchical
// allreduce; the form for uneven units and blocks is tutti's.
#include "coll/hierarchy.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::reduce_scatter, Coll::reduce_scatter_block};
constexpr Param parameters[] = {
    chunk_param,
    inner_param,
    {"top", Param::Unit::choice, 0, 0, 2, "Algorithm between the units.", "pairwise|ring|pat"},
    rails_param};
constexpr const char* tops[] = {"pairwise", "ring", "pat"};

const Algorithm* top_of(const Params& params) {
  return find_algorithm(Coll::reduce_scatter, tops[params[2]]);
}

bool applies(const Agreed& agreed, const Topology& topology, const Params& params) {
  return units_apply(top_of(params), agreed, topology);
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  BlockComposer::Setting setting;
  setting.chunk_bytes = place.params[0];
  setting.inner = static_cast<Inner>(place.params[1]);
  setting.top = top_of(place.params);
  return BlockComposer(problem, place, static_cast<int>(place.params[3]), -1, setting, builder)
      .reduce_scatter();
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  return estimate_blocks(Coll::reduce_scatter, top_of(params), s, static_cast<int>(params[3]),
                         params[0], static_cast<Inner>(params[1]));
}

}  // namespace

extern const Algorithm reduce_scatter_hierarchical{
    "hierarchical", "Levels: slices reduced in units, then between them side by side.",
    collectives,    parameters,
    applies,        estimate,
    generate};

}  // namespace tutti
