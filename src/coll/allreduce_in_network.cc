// In-network allreduce: the switches of the fabric reduce what every rank sends them, and send it back.
// Steps 1; bytes sent a rank n. Best wherever there are such switches and a rank a node. Source: R. L.
// Graham et al., "Scalable Hierarchical Aggregation Protocol (SHARP)", COMHPC 2016.
#include "coll/in_network.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::allreduce};

}  // namespace

extern const Algorithm allreduce_in_network{
    "in_network",       "Switches of the fabric reduce (SHARP); a rank a node.",
    collectives,        {},
    in_network_applies, estimate_in_network,
    generate_in_network};

}  // namespace tutti
