// In-network barrier: the switches of the fabric hear from every rank and tell all.
// Steps 1; no bytes. Best wherever there are such switches and a rank a node. Source: as allreduce.
#include "coll/in_network.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::barrier};

bool applies(const Agreed& agreed, const Topology& topology, const Params&) {
  return in_network_applies(agreed, topology);
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  return generate_in_network(problem, place, builder);
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  return estimate_in_network(s);
}

}  // namespace

extern const Algorithm barrier_in_network{
    "in_network", "Switches of the fabric hear from all and tell all (SHARP); a rank a node.",
    collectives,  {},
    applies,      estimate,
    generate};

}  // namespace tutti
