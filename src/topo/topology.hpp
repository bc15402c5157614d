// Topology: where the ranks of one communicator sit, and what hardware is there, as a value.
//
// Equal on all ranks (it is exchanged at set-up or described by the user), so choices may rest on
// it. Text form, for settings and tests: words "name:value", set off by spaces or commas:
//   node:2          nodes
//   gpu:8           GPUs a node; "gpu:8,4" repeats over the nodes: uneven ones
//   nic:4           NICs a node, spread over its switches
//   rank:16         ranks a node, dealt to its GPUs in runs; left out: one a GPU, or one where
//   there is none nvlink:4        GPUs in an NVLink domain; more than a node has: domains span
//   nodes; 1: no NVLink numa:2 switch:4 parts of a node that GPUs and NICs are spread over
//   sharp:2         switches of the fabric compute: generation 1 (Switch-IB 2), 2 (Quantum), 3 (Quantum-2)
//   order:round     ranks go round the nodes instead of filling one after the other
// JSON form, for recorded machines: see topology_json.cc and test/machines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace tutti {

// Where a device sits in its node; equal numbers mean the same part. A switch lies under one root,
// a root in one NUMA node.
struct Slot {
  int32_t numa = 0;
  int32_t root = 0;  // PCIe root complex
  int32_t pcie_switch = 0;
  friend bool operator==(const Slot&, const Slot&) = default;
};

struct Gpu {
  Slot slot;
  int32_t nvlink = -1;  // domain, over all nodes; -1: none
  friend bool operator==(const Gpu&, const Gpu&) = default;
};

struct Nic {
  Slot slot;
  std::string name;
  double gbps = 100;    // of its port
  bool compute = true;  // false: for storage or management only
  friend bool operator==(const Nic&, const Nic&) = default;
};

struct Node {
  std::vector<Gpu> gpus;
  std::vector<Nic> nics;
  friend bool operator==(const Node&, const Node&) = default;
};

struct RankPlace {
  int32_t node = 0;
  int32_t gpu = -1;  // in the node; -1: none
  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

// How far two ranks are from each other.
enum class Distance : uint8_t { self, shared_gpu, nvlink, node, fabric };
const char* name(Distance distance);

// How far a GPU is from a NIC, as nvidia-smi names it: PIX, PXB or PHB, NODE, SYS.
enum class PciDistance : uint8_t { one_switch, one_root, one_numa, system };
PciDistance distance(const Slot& a, const Slot& b);

struct Topology {
  int nranks = 1;
  std::vector<Node> nodes;
  std::vector<RankPlace> ranks;  // nranks long; empty: one rank a node and no GPU
  int sharp = 0;                 // generation of the fabric's switches that compute; 0: none do

  int node_of(int rank) const { return ranks.empty() ? rank : ranks[index(rank)].node; }
  int gpu_of(int rank) const { return ranks.empty() ? -1 : ranks[index(rank)].gpu; }
  // NVLink domain of the rank's GPU; -1: none.
  int nvlink_of(int rank) const;
  Distance distance(int a, int b) const;
  int node_count() const;
  // Ranks by node, nodes in the order of their first rank.
  std::vector<std::vector<int32_t>> ranks_by_node() const;
  // Ranks that reach each other without the fabric: by node, or by NVLink domain where that spans
  // nodes. In the order of their first ranks.
  std::vector<std::vector<int32_t>> units() const;
  // NICs that carry the traffic of these ranks' nodes: where none is described, one a GPU; 1 at
  // least.
  int nics_of(const std::vector<int32_t>& some) const;
  // The same ranks one a node, no devices: what a flat algorithm needs to know.
  static Topology flat(int nranks);
  // The part of it that the listed ranks see, numbered in that order.
  Topology restricted(const std::vector<int32_t>& some) const;
  // Over the whole value; equal on all ranks and in all runs.
  uint64_t hash() const;
  friend bool operator==(const Topology&, const Topology&) = default;

 private:
  static size_t index(int rank) { return static_cast<size_t>(rank); }
};

// Both log what is wrong with the description and return bad_setting.
Result<Topology> parse_topology(std::string_view text);
Result<Topology> parse_topology_json(std::string_view json);
std::string to_json(const Topology& topology);

// Which NICs each GPU of a node uses: per GPU, numbers into node.nics, best first. Pure, and solved
// for the whole node at once: least total distance among the most even assignments. Fewer NICs than
// GPUs are shared as evenly as can be; with m times as many each GPU gets m. Only compute NICs of
// at least half the fastest one's rate take part. Empty lists where there is none.
std::vector<std::vector<int32_t>> match_nics(const Node& node);

}  // namespace tutti
