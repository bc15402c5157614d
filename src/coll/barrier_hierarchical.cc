// Hierarchical barrier: word inside each unit to one rank, a barrier of these, and word back.
// Steps: those of the levels; m log m messages between m nodes. Best with many ranks a node.
// Source: common practice, as Open MPI coll/han.
#include "coll/hierarchy.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::barrier};
constexpr Param parameters[] = {
    inner_param,
    {"top", Param::Unit::choice, 0, 0, 2, "Algorithm between the units.",
     "dissemination|knomial|in_network"}};
constexpr const char* tops[] = {"dissemination", "knomial", "in_network"};

const Algorithm* top_of(const Params& params) {
  return find_algorithm(Coll::barrier, tops[params[1]]);
}

bool applies(const Agreed& agreed, const Topology& topology, const Params& params) {
  return levels_apply(*top_of(params), agreed, topology);
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  Composer::Setting setting;
  setting.inner = static_cast<Inner>(place.params[0]);
  setting.top = top_of(place.params);
  return Composer(problem, place, 1, -1, setting, builder).barrier();
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  return estimate_levels(*top_of(params), s, 1, 0, static_cast<Inner>(params[0]));
}

}  // namespace

extern const Algorithm barrier_hierarchical{
    "hierarchical", "Levels: word to one rank of every unit, a barrier of these, word back.",
    collectives,    parameters,
    applies,        estimate,
    generate};

}  // namespace tutti
