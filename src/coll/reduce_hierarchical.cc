// Hierarchical reduce: up to one rank of every unit, then between those to the root.
// Steps: those of the levels; bytes that leave a node: n. Best on several nodes.
// Source: common practice, as Open MPI coll/han.
#include "coll/hierarchy.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::reduce};
constexpr Param parameters[] = {chunk_param,
                                inner_param,
                                {"top", Param::Unit::choice, 0, 0, 2,
                                 "Algorithm between the units.", "binomial|rabenseifner|chain"}};
constexpr const char* tops[] = {"binomial", "rabenseifner", "chain"};

const Algorithm* top_of(const Params& params) {
  return find_algorithm(Coll::reduce, tops[params[2]]);
}

bool applies(const Agreed& agreed, const Topology& topology, const Params& params) {
  return levels_apply(*top_of(params), agreed, topology);
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  Composer::Setting setting;
  setting.inner = static_cast<Inner>(place.params[1]);
  setting.top = top_of(place.params);
  setting.chunk_bytes = place.params[0];
  return Composer(problem, place, 1, problem.agreed.root, setting, builder).reduce();
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  return estimate_levels(*top_of(params), s, 1, params[0], static_cast<Inner>(params[1]));
}

}  // namespace

extern const Algorithm reduce_hierarchical{
    "hierarchical", "Levels: reduce in units, then between them.",
    collectives,    parameters,
    applies,        estimate,
    generate};

}  // namespace tutti
