// Hierarchical alltoall: what a node's ranks have for another node's is collected, crosses as one
// message and is handed out there; several ranks of a node share the other nodes among them, one a
// rail.
// Steps: 3; messages that leave a node: m-1 for m nodes, where pairwise has g*g of them for each pair
// of nodes with g ranks; bytes that leave it are the same, but every byte moves twice more inside.
// Best for short blocks on many ranks a node. Blocks of unequal size are left to pairwise and sparse:
// nobody knows those of others. Source: R. Kumar, A. Mamidala, D. K. Panda, "Scaling alltoall
// collective on multi-core systems", IPDPS 2008; several owners a node and uneven nodes are tutti's.
#include "coll/hierarchy.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::alltoall};
constexpr Param parameters[] = {chunk_param, rails_param};

bool applies(const Agreed& agreed, const Topology& topology, const Params&) {
  return units_apply(nullptr, agreed, topology);
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  BlockComposer::Setting setting;
  setting.chunk_bytes = place.params[0];
  return BlockComposer(problem, place, static_cast<int>(place.params[1]), -1, setting, builder)
      .alltoall();
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  return estimate_blocks(Coll::alltoall, nullptr, s, static_cast<int>(params[1]), params[0],
                         Inner::messages);
}

}  // namespace

extern const Algorithm alltoall_hierarchical{
    "hierarchical", "Levels: one message between two nodes, collected and handed out inside.",
    collectives,    parameters,
    applies,        estimate,
    generate};

}  // namespace tutti
