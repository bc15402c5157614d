// Hierarchical gather: blocks go to one rank of every node, and between these to the root.
// Steps: 1 and ceil(log2 m) for m nodes, or 2; messages into the root's node: one for each other node,
// where a flat algorithm has one for each rank. Blocks of unequal size are left to the linear gather:
// only the root knows them, so nobody could pass on those of others.
// Best for short blocks and many ranks a node. Source: common practice, as Open MPI coll/han.
#include "coll/hierarchy.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::gather};
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
      .gather(place.params[1] == 0 ? 2 : 0);
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  const Algorithm* top = params[1] == 0 ? find_algorithm(Coll::gather, "binomial") : nullptr;
  return estimate_blocks(Coll::gather, top, s, 1, params[0], Inner::messages);
}

}  // namespace

extern const Algorithm gather_hierarchical{
    "hierarchical", "Levels: blocks to one rank of every unit, then to the root.",
    collectives,    parameters,
    applies,        estimate,
    generate};

}  // namespace tutti
