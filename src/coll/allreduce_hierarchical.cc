// Hierarchical allreduce: reduce-scatter inside each unit (ranks of a GPU, NVLink domain, node), an
// allreduce of every slice among its owners side by side, one a rail, allgather inside.
// Steps: those of the levels; bytes that leave a node: 2n(m-1)/m for m nodes, spread over its NICs.
// Best for long messages on several nodes; with rails=1 for short ones. Source: as UCC cl/hier
// "split rail" and NCCL's use of one ring a NIC; the form for uneven units is tutti's.
#include "coll/hierarchy.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::allreduce};
constexpr Param parameters[] = {
    chunk_param,
    inner_param,
    {"top", Param::Unit::choice, 0, 0, 4, "Algorithm between the units.",
     "recursive_doubling|rabenseifner|ring|double_tree|in_network"},
    rails_param};
constexpr const char* tops[] = {"recursive_doubling", "rabenseifner", "ring", "double_tree",
                                "in_network"};

const Algorithm* top_of(const Params& params) {
  return find_algorithm(Coll::allreduce, tops[params[2]]);
}

bool applies(const Agreed& agreed, const Topology& topology, const Params& params) {
  return levels_apply(*top_of(params), agreed, topology);
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  Composer::Setting setting;
  setting.inner = static_cast<Inner>(place.params[1]);
  setting.top = top_of(place.params);
  setting.chunk_bytes = place.params[0];
  return Composer(problem, place, static_cast<int>(place.params[3]), -1, setting, builder)
      .allreduce();
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  return estimate_levels(*top_of(params), s, static_cast<int>(params[3]), params[0],
                         static_cast<Inner>(params[1]));
}

}  // namespace

extern const Algorithm allreduce_hierarchical{
    "hierarchical", "Levels: reduce-scatter in units, allreduce by slices between them, allgather.",
    collectives,    parameters,
    applies,        estimate,
    generate};

}  // namespace tutti
