#include "topo/topology.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <set>

#include "base/hash.hpp"
#include "base/log.hpp"

namespace tutti {

const char* name(Distance distance) {
  constexpr const char* names[] = {"self", "shared GPU", "NVLink", "node", "fabric"};
  return names[static_cast<size_t>(distance)];
}

PciDistance distance(const Slot& a, const Slot& b) {
  if (a.numa != b.numa) return PciDistance::system;
  if (a.root != b.root) return PciDistance::one_numa;
  return a.pcie_switch == b.pcie_switch ? PciDistance::one_switch : PciDistance::one_root;
}

int Topology::nvlink_of(int rank) const {
  const int gpu = gpu_of(rank);
  if (gpu < 0 || index(node_of(rank)) >= nodes.size()) return -1;
  return nodes[index(node_of(rank))].gpus[index(gpu)].nvlink;
}

Distance Topology::distance(int a, int b) const {
  if (a == b) return Distance::self;
  const bool same_node = node_of(a) == node_of(b);
  if (same_node && gpu_of(a) >= 0 && gpu_of(a) == gpu_of(b)) return Distance::shared_gpu;
  if (nvlink_of(a) >= 0 && nvlink_of(a) == nvlink_of(b)) return Distance::nvlink;
  return same_node ? Distance::node : Distance::fabric;
}

int Topology::node_count() const {
  return ranks.empty() ? nranks : static_cast<int>(ranks_by_node().size());
}

std::vector<std::vector<int32_t>> Topology::ranks_by_node() const {
  std::vector<std::vector<int32_t>> groups;
  std::map<int, size_t> known;
  for (int r = 0; r < nranks; ++r) {
    auto [at, fresh] = known.try_emplace(node_of(r), groups.size());
    if (fresh) groups.emplace_back();
    groups[at->second].push_back(r);
  }
  return groups;
}

std::vector<std::vector<int32_t>> Topology::units() const {
  std::map<int, int> node_of_domain;  // -1: it spans nodes
  for (int r = 0; r < nranks; ++r)
    if (const int domain = nvlink_of(r); domain >= 0) {
      auto [at, fresh] = node_of_domain.try_emplace(domain, node_of(r));
      if (at->second != node_of(r)) at->second = -1;
    }
  std::vector<std::vector<int32_t>> units;
  std::map<std::pair<bool, int>, size_t> known;
  for (int r = 0; r < nranks; ++r) {
    const int domain = nvlink_of(r);
    const bool spans = domain >= 0 && node_of_domain.at(domain) < 0;
    auto [at, fresh] = known.try_emplace({spans, spans ? domain : node_of(r)}, units.size());
    if (fresh) units.emplace_back();
    units[at->second].push_back(r);
  }
  return units;
}

int Topology::nics_of(const std::vector<int32_t>& some) const {
  std::set<int> seen;
  size_t count = 0;
  for (int32_t rank : some) {
    const int node = node_of(rank);
    if (index(node) >= nodes.size() || !seen.insert(node).second) continue;
    const Node& here = nodes[index(node)];
    size_t compute = 0;
    for (const Nic& nic : here.nics) compute += nic.compute ? 1 : 0;
    count += here.nics.empty() ? here.gpus.size() : compute;
  }
  return static_cast<int>(std::max<size_t>(1, count));
}

Topology Topology::flat(int nranks) {
  Topology flat;
  flat.nranks = nranks;
  return flat;
}

Topology Topology::restricted(const std::vector<int32_t>& some) const {
  Topology part;
  part.nranks = static_cast<int>(some.size());
  part.nodes = nodes;
  part.sharp = sharp;
  for (int32_t rank : some) part.ranks.push_back({node_of(rank), gpu_of(rank)});
  return part;
}

namespace {

// FNV-1a over the fields, not over memory: padding and pointers stay out.
class Hash {
 public:
  void add(uint64_t value) {
    for (int i = 0; i < 8; ++i)
      state_ = hash_byte(state_, static_cast<unsigned char>(value >> (8 * i)));
  }
  void add(const Slot& slot) {
    add(static_cast<uint64_t>(slot.numa));
    add(static_cast<uint64_t>(slot.root));
    add(static_cast<uint64_t>(slot.pcie_switch));
  }
  void add(std::string_view text) {
    add(text.size());
    for (char c : text) add(static_cast<uint64_t>(static_cast<unsigned char>(c)));
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = empty_hash;
};

}  // namespace

uint64_t Topology::hash() const {
  Hash hash;
  hash.add(static_cast<uint64_t>(nranks));
  hash.add(nodes.size());
  for (const Node& node : nodes) {
    hash.add(node.gpus.size());
    for (const Gpu& gpu : node.gpus) {
      hash.add(gpu.slot);
      hash.add(static_cast<uint64_t>(gpu.nvlink));
    }
    hash.add(node.nics.size());
    for (const Nic& nic : node.nics) {
      hash.add(nic.slot);
      hash.add(nic.name);
      uint64_t rate;
      std::memcpy(&rate, &nic.gbps, sizeof rate);
      hash.add(rate);
      hash.add(nic.compute ? 1 : 0);
    }
  }
  for (const RankPlace& place : ranks) {
    hash.add(static_cast<uint64_t>(place.node));
    hash.add(static_cast<uint64_t>(place.gpu));
  }
  hash.add(static_cast<uint64_t>(sharp));
  return hash.value();
}

namespace {

constexpr uint64_t most_ranks = 1 << 20;

// The words of the text form.
struct Words {
  std::map<std::string, std::vector<uint64_t>, std::less<>> lists;
  bool round = false;

  // Value for node i: lists repeat.
  uint64_t at(std::string_view name, size_t i, uint64_t otherwise) const {
    auto found = lists.find(name);
    return found == lists.end() ? otherwise : found->second[i % found->second.size()];
  }
};

Status refuse(std::string_view text, std::string_view why) {
  TUTTI_ERROR("topo", "topology \"{}\": {}; an example is \"node:2 gpu:8 nic:4\"", text, why);
  return Code::bad_setting;
}

Status parse_word(std::string_view text, std::string_view word, std::vector<uint64_t>*& list,
                  Words& words) {
  constexpr std::string_view known[] = {"node",   "gpu",  "nic",    "rank",
                                        "nvlink", "numa", "switch", "sharp"};
  const size_t colon = word.find(':');
  std::string_view value = word;
  if (colon != std::string_view::npos) {
    std::string_view key = word.substr(0, colon);
    value = word.substr(colon + 1);
    if (key == "order") {
      if (value != "round" && value != "block") return refuse(text, "order is round or block");
      words.round = value == "round";
      list = nullptr;
      return {};
    }
    if (std::find(std::begin(known), std::end(known), key) == std::end(known))
      return refuse(text, tutti::text("no word \"{}\"", key));
    list = &words.lists[std::string(key)];
    if (!list->empty()) return refuse(text, tutti::text("\"{}\" comes twice", key));
  }
  uint64_t number = 0;
  auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (list == nullptr || error != std::errc() || end != value.data() + value.size() ||
      number > most_ranks)
    return refuse(text, tutti::text("\"{}\" is no number", word));
  list->push_back(number);
  return {};
}

Result<Words> split(std::string_view text) {
  Words words;
  std::vector<uint64_t>* list = nullptr;
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find_first_of(" ,\t\n", at);
    if (end == std::string_view::npos) end = text.size();
    if (end > at) TUTTI_TRY(parse_word(text, text.substr(at, end - at), list, words));
    at = end + 1;
  }
  return words;
}

Slot spread(uint64_t i, uint64_t n, uint64_t numas, uint64_t switches) {
  const auto at = static_cast<int32_t>(i * switches / n);
  return {static_cast<int32_t>(static_cast<uint64_t>(at) * numas / switches), at, at};
}

Node make_node(const Words& words, size_t i, uint64_t& gpus_so_far) {
  Node node;
  const uint64_t gpus = words.at("gpu", i, 0), nics = words.at("nic", i, 0);
  const uint64_t numas = std::max<uint64_t>(1, words.at("numa", i, 1));
  const uint64_t switches = std::max(numas, words.at("switch", i, std::max<uint64_t>(1, gpus)));
  const uint64_t domain = words.at("nvlink", i, gpus);
  for (uint64_t g = 0; g < gpus; ++g) {
    Gpu gpu{spread(g, gpus, numas, switches), -1};
    // A domain that is given no wider than a node does not go on into the next one.
    if (domain > gpus)
      gpu.nvlink = static_cast<int32_t>((gpus_so_far + g) / domain);
    else if (domain > 1)
      gpu.nvlink = static_cast<int32_t>(i * 1024 + g / domain);
    node.gpus.push_back(gpu);
  }
  for (uint64_t n = 0; n < nics; ++n)
    node.nics.push_back({spread(n, nics, numas, switches), tutti::text("nic{}", n), 100, true});
  gpus_so_far += gpus;
  return node;
}

}  // namespace

Result<Topology> parse_topology(std::string_view text) {
  Result<Words> words = split(text);
  if (!words.ok()) return words.status();
  const uint64_t nodes = words->at("node", 0, 1);
  if (nodes == 0) return refuse(text, "no node");
  Topology topology;
  std::vector<std::vector<RankPlace>> places;
  uint64_t gpus_so_far = 0, total = 0, deepest = 0;
  for (uint64_t i = 0; i < nodes; ++i) {
    topology.nodes.push_back(make_node(*words, i, gpus_so_far));
    const uint64_t gpus = topology.nodes.back().gpus.size();
    const uint64_t ranks = words->at("rank", i, std::max<uint64_t>(1, gpus));
    if ((total += ranks) > most_ranks) return refuse(text, "too many ranks");
    places.emplace_back();
    for (uint64_t r = 0; r < ranks; ++r)
      places.back().push_back(
          {static_cast<int32_t>(i), gpus == 0      ? -1
                                    : ranks < gpus ? static_cast<int32_t>(r)
                                                   : static_cast<int32_t>(r * gpus / ranks)});
    deepest = std::max(deepest, ranks);
  }
  if (total == 0) return refuse(text, "no rank");
  topology.nranks = static_cast<int>(total);
  topology.sharp = static_cast<int>(words->at("sharp", 0, 0));
  if (topology.sharp > 3) return refuse(text, "sharp is a generation of switches, 1 to 3");
  if (!words->round)
    for (const auto& node : places)
      topology.ranks.insert(topology.ranks.end(), node.begin(), node.end());
  for (uint64_t r = 0; words->round && r < deepest; ++r)
    for (const auto& node : places)
      if (r < node.size()) topology.ranks.push_back(node[r]);
  return topology;
}

}  // namespace tutti
