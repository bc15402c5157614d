// JSON form of a topology, for recorded machines:
//   {"nodes": [{"count": 2,
//               "gpus": [{"numa": 0, "root": 0, "switch": 0, "nvlink": 0}, ...],
//               "nics": [{"name": "mlx5_0", "numa": 0, "root": 0, "switch": 0, "gbps": 200,
//                         "compute": true}, ...]}],
//    "ranks": [{"node": 0, "gpu": 0}, ...]}
// NVLink domains are numbered inside an entry of "nodes"; "count" repeats it, with domains of its
// own for each copy unless "nvlink_shared" is true. With "nvlink_global" (as to_json writes)
// numbers hold over all nodes. Without "ranks" there is one rank a GPU, or one a node that has
// none. Other members ("source") are ignored.
#include <algorithm>

#include "base/log.hpp"
#include "topo/topology.hpp"

#if __has_include(<nlohmann/json.hpp>)
#include <nlohmann/json.hpp>

namespace tutti {

namespace {

using nlohmann::json;

constexpr int64_t most_nodes = 1 << 20;

Slot slot_of(const json& device) {
  Slot slot;
  slot.numa = device.value("numa", 0);
  slot.root = device.value("root", slot.numa);
  slot.pcie_switch = device.value("switch", slot.root);
  return slot;
}

Node node_of(const json& from) {
  Node node;
  for (const json& gpu : from.value("gpus", json::array()))
    node.gpus.push_back({slot_of(gpu), gpu.value("nvlink", -1)});
  for (const json& nic : from.value("nics", json::array()))
    node.nics.push_back({slot_of(nic), nic.at("name").get<std::string>(), nic.value("gbps", 100.0),
                         nic.value("compute", true)});
  return node;
}

// Numbers NVLink domains of a repeated node apart.
int32_t domains(const Node& node) {
  int32_t most = -1;
  for (const Gpu& gpu : node.gpus) most = std::max(most, gpu.nvlink);
  return most + 1;
}

void append_nodes(const json& from, bool global, Topology& topology, int32_t& next_domain) {
  const Node node = node_of(from);
  const int64_t count = from.value("count", int64_t{1});
  if (count < 1 || count > most_nodes) throw std::out_of_range("count of a node");
  const bool shared = from.value("nvlink_shared", false);
  for (int64_t i = 0; i < count; ++i) {
    topology.nodes.push_back(node);
    for (Gpu& gpu : topology.nodes.back().gpus)
      if (gpu.nvlink >= 0 && !global) gpu.nvlink += next_domain;
    if (!shared || i + 1 == count) next_domain += domains(node);
  }
}

void check_rank(const Topology& topology, const RankPlace& place) {
  if (place.node < 0 || static_cast<size_t>(place.node) >= topology.nodes.size())
    throw std::out_of_range("node of a rank");
  const auto gpus =
      static_cast<int32_t>(topology.nodes[static_cast<size_t>(place.node)].gpus.size());
  if (place.gpu < -1 || place.gpu >= gpus) throw std::out_of_range("gpu of a rank");
}

void append_ranks(const json& from, Topology& topology) {
  if (from.contains("ranks")) {
    for (const json& rank : from.at("ranks")) {
      topology.ranks.push_back({rank.at("node").get<int32_t>(), rank.value("gpu", -1)});
      check_rank(topology, topology.ranks.back());
    }
  } else {
    for (size_t n = 0; n < topology.nodes.size(); ++n) {
      const auto gpus = static_cast<int32_t>(topology.nodes[n].gpus.size());
      if (gpus == 0) topology.ranks.push_back({static_cast<int32_t>(n), -1});
      for (int32_t g = 0; g < gpus; ++g) topology.ranks.push_back({static_cast<int32_t>(n), g});
    }
  }
  if (topology.ranks.empty()) throw std::out_of_range("no rank");
  topology.nranks = static_cast<int>(topology.ranks.size());
}

json to_json(const Slot& slot) {
  return {{"numa", slot.numa}, {"root", slot.root}, {"switch", slot.pcie_switch}};
}

}  // namespace

Result<Topology> parse_topology_json(std::string_view text) {
  // nlohmann::json reports by exceptions; none leaves this function.
  try {
    const json from = json::parse(text);
    Topology topology;
    int32_t next_domain = 0;
    const bool global = from.value("nvlink_global", false);
    for (const json& node : from.at("nodes")) append_nodes(node, global, topology, next_domain);
    append_ranks(from, topology);
    topology.sharp = from.value("sharp", 0);
    if (topology.sharp < 0 || topology.sharp > 3) throw std::out_of_range("sharp");
    return topology;
  } catch (const std::exception& error) {
    TUTTI_ERROR("topo", "topology in JSON: {}", error.what());
    return Code::bad_setting;
  }
}

std::string to_json(const Topology& topology) {
  json nodes = json::array(), ranks = json::array();
  for (const Node& node : topology.nodes) {
    json gpus = json::array(), nics = json::array();
    for (const Gpu& gpu : node.gpus) {
      gpus.push_back(to_json(gpu.slot));
      gpus.back()["nvlink"] = gpu.nvlink;
    }
    for (const Nic& nic : node.nics) {
      nics.push_back(to_json(nic.slot));
      nics.back().update({{"name", nic.name}, {"gbps", nic.gbps}, {"compute", nic.compute}});
    }
    nodes.push_back({{"gpus", gpus}, {"nics", nics}});
  }
  for (int r = 0; r < topology.nranks; ++r)
    ranks.push_back({{"node", topology.node_of(r)}, {"gpu", topology.gpu_of(r)}});
  json all{{"nvlink_global", true}, {"nodes", nodes}, {"ranks", ranks}};
  if (topology.sharp != 0) all["sharp"] = topology.sharp;
  return all.dump(1);
}

}  // namespace tutti

#else

namespace tutti {

Result<Topology> parse_topology_json(std::string_view) {
  TUTTI_ERROR("topo", "topology in JSON: built without nlohmann-json; use the text form");
  return Code::unsupported;
}

std::string to_json(const Topology&) {
  return "{}";
}

}  // namespace tutti

#endif
