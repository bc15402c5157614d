// Hierarchical broadcast: between one rank of every unit, then inside the units, in chunks; with several
// rails the root's unit takes a slice each, broadcasts them side by side, and units gather them.
// Steps: those of the levels; bytes into a node: n, over one NIC or spread over its NICs. Best on several
// nodes. Source: common practice, as Open MPI coll/han; rails as in scatter and allgather.
#include "coll/hierarchy.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::bcast};
constexpr Param parameters[] = {
    chunk_param,
    inner_param,
    {"top", Param::Unit::choice, 0, 0, 2, "Algorithm between the units.",
     "binomial|chain|scatter_allgather"},
    {"rails", Param::Unit::number, 1, 0, 64, "Slices side by side; 0: as units and NICs allow."}};
constexpr const char* tops[] = {"binomial", "chain", "scatter_allgather"};

const Algorithm* top_of(const Params& params) {
  return find_algorithm(Coll::bcast, tops[params[2]]);
}

bool applies(const Agreed& agreed, const Topology& topology, const Params& params) {
  return levels_apply(*top_of(params), agreed, topology);
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  Composer::Setting setting;
  setting.inner = static_cast<Inner>(place.params[1]);
  setting.top = top_of(place.params);
  setting.chunk_bytes = place.params[0];
  return Composer(problem, place, static_cast<int>(place.params[3]), problem.agreed.root, setting,
                  builder)
      .bcast();
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  return estimate_levels(*top_of(params), s, static_cast<int>(params[3]), params[0],
                         static_cast<Inner>(params[1]));
}

}  // namespace

extern const Algorithm bcast_hierarchical{
    "hierarchical", "Levels: broadcast between units, then inside them.",
    collectives,    parameters,
    applies,        estimate,
    generate};

}  // namespace tutti
