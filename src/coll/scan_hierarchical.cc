// Hierarchical scan and exscan: a scan inside every node, an exscan of the nodes' reductions by their
// last ranks, and what lies below a node put to all in it. Nodes must hold runs of ranks.
// Steps: 2 log2 g + log2 m for m nodes of g ranks; bytes that leave a node n log2 m, where flat
// recursive doubling sends g times that. Best on several ranks a node. Source: the scan by
// blocks of G. E. Blelloch, "Prefix sums and their applications", CMU-CS-90-190, 1990.
#include "coll/hierarchy.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::scan, Coll::exscan};
constexpr Param parameters[] = {chunk_param,
                                {"top", Param::Unit::choice, 0, 0, 1,
                                 "Algorithm between the units.", "recursive_doubling|chain"}};
constexpr const char* tops[] = {"recursive_doubling", "chain"};

const Algorithm* top_of(const Params& params) {
  return find_algorithm(Coll::exscan, tops[params[1]]);
}

bool applies(const Agreed& agreed, const Topology& topology, const Params& params) {
  return units_apply(top_of(params), agreed, topology);
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  BlockComposer::Setting setting;
  setting.chunk_bytes = place.params[0];
  setting.top = top_of(place.params);
  return BlockComposer(problem, place, 1, -1, setting, builder).scan();
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  return estimate_blocks(Coll::scan, top_of(params), s, 1, params[0], Inner::messages);
}

}  // namespace

extern const Algorithm scan_hierarchical{
    "hierarchical", "Levels: a scan in every unit, and an exscan of the units' reductions.",
    collectives,    parameters,
    applies,        estimate,
    generate};

}  // namespace tutti
