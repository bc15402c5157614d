// Hierarchical scatter: the root sends each node its blocks as one message, and one rank there hands
// them out. Steps: 1 and ceil(log2 m) for m nodes, or 2; messages out of the root's node: one for each
// other node, where a flat algorithm has one for each rank. Blocks of unequal size are left to the
// linear scatter: only the root knows them, so nobody could pass on those of others.
// Best for short blocks and many ranks a node. Source: common practice, as Open MPI coll/han.
#include "coll/hierarchy.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::scatter};
constexpr Param parameters[] = {
    chunk_param,
    {"top", Param::Unit::choice, 0, 0, 1, "How it goes between the units.", "binomial|linear"}};

bool applies(const Agreed& agreed, const Topology& topology, const Params&) {
  return units_apply(nullptr, agreed, topology);
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  BlockComposer::Setting setting;
  setting.chunk_bytes = place.params[0];
  return BlockComposer(problem, place, 1, problem.agreed.root, setting, builder)
      .scatter(place.params[1] == 0 ? 2 : 0);
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  const Algorithm* top = params[1] == 0 ? find_algorithm(Coll::scatter, "binomial") : nullptr;
  return estimate_blocks(Coll::scatter, top, s, 1, params[0], Inner::messages);
}

}  // namespace

extern const Algorithm scatter_hierarchical{
    "hierarchical", "Levels: blocks to one rank of every unit, which hands them out.",
    collectives,    parameters,
    applies,        estimate,
    generate};

}  // namespace tutti
