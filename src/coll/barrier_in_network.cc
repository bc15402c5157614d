// In-network barrier: the switches of the fabric hear from every rank and tell all.
// Steps 1; no bytes. Best wherever there are such switches and a rank a node. Source: as allreduce.
#include "coll/in_network.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::barrier};

}  // namespace

extern const Algorithm barrier_in_network{
    "in_network",       "Switches of the fabric hear from all and tell all (SHARP); a rank a node.",
    collectives,        {},
    in_network_applies, estimate_in_network,
    generate_in_network};

}  // namespace tutti
