// Hierarchical allgather: what the ranks of a node have is cut into slices, one a rail; each is
// gathered among the nodes by its owners, side by side, and then inside the nodes.
// Steps: those of the levels; bytes that leave a node: n(m-1)/m of the whole for m nodes, spread over
// its NICs, where flat algorithms on ranks that go round the nodes send each block several times.
// Best on several nodes. Source: as Open MPI coll/han and UCC cl/hier; the form for uneven units and
// several rails is tutti's.
#include "coll/hierarchy.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::allgather, Coll::allgatherv};
constexpr Param parameters[] = {
    chunk_param,
    inner_param,
    {"top", Param::Unit::choice, 0, 0, 2, "Algorithm between the units.", "ring|bruck|pat"},
    rails_param};
constexpr const char* tops[] = {"ring", "bruck", "pat"};

const Algorithm* top_of(const Params& params) {
  return find_algorithm(Coll::allgatherv, tops[params[2]]);
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
      .allgather();
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  return estimate_blocks(Coll::allgather, top_of(params), s, static_cast<int>(params[3]), params[0],
                         static_cast<Inner>(params[1]));
}

}  // namespace

extern const Algorithm allgather_hierarchical{
    "hierarchical", "Levels: slices gathered between units side by side, then inside them.",
    collectives,    parameters,
    applies,        estimate,
    generate};

}  // namespace tutti
