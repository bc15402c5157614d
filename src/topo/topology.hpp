// Topology: where the ranks of one communicator sit, as a value.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti {

struct Topology {
  int nranks = 1;
  // Node of each rank, nranks long; empty: one rank a node.
  std::vector<int32_t> node_of;
};

}  // namespace tutti
