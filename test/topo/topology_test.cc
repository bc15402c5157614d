#include "topo/topology.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/log.hpp"

namespace tutti {
namespace {

Topology parsed(std::string_view text) {
  Result<Topology> topology = parse_topology(text);
  EXPECT_TRUE(topology.ok()) << text;
  return topology.ok() ? *topology : Topology{};
}

TEST(Topology, TextFillsNodesOneRankAGpu) {
  Topology t = parsed("node:2 gpu:8 nic:4");
  EXPECT_EQ(t.nranks, 16);
  EXPECT_EQ(t.node_count(), 2);
  EXPECT_EQ(t.nodes[1].gpus.size(), 8u);
  EXPECT_EQ(t.nodes[1].nics.size(), 4u);
  EXPECT_EQ(t.node_of(9), 1);
  EXPECT_EQ(t.gpu_of(9), 1);
  EXPECT_EQ(t.distance(3, 3), Distance::self);
  EXPECT_EQ(t.distance(0, 7), Distance::nvlink);
  EXPECT_EQ(t.distance(0, 8), Distance::fabric);
}

TEST(Topology, CommasSetWordsOffAndMakeLists) {
  EXPECT_EQ(parsed("node:2,gpu:8,nic:4"), parsed("node:2 gpu:8 nic:4"));
  Topology t = parsed("node:3,gpu:4,2,0,nic:1");
  EXPECT_EQ(t.nodes[0].gpus.size(), 4u);
  EXPECT_EQ(t.nodes[1].gpus.size(), 2u);
  EXPECT_EQ(t.nodes[2].gpus.size(), 0u);
  EXPECT_EQ(t.nranks, 7);
  EXPECT_EQ(t.gpu_of(6), -1);
}

TEST(Topology, RanksShareGpusInRuns) {
  Topology t = parsed("gpu:2 rank:4");
  EXPECT_EQ(t.gpu_of(1), 0);
  EXPECT_EQ(t.gpu_of(2), 1);
  EXPECT_EQ(t.distance(0, 1), Distance::shared_gpu);
  EXPECT_EQ(t.distance(1, 2), Distance::nvlink);
}

TEST(Topology, RoundGoesRoundTheNodes) {
  Topology t = parsed("node:2 rank:3,1 order:round");
  EXPECT_EQ(t.ranks_by_node(), (std::vector<std::vector<int32_t>>{{0, 2, 3}, {1}}));
  EXPECT_EQ(t.distance(0, 2), Distance::node);
}

TEST(Topology, NvlinkDomainsSplitNodesOrSpanThem) {
  Topology split = parsed("node:2 gpu:8 nvlink:4");
  EXPECT_EQ(split.distance(0, 3), Distance::nvlink);
  EXPECT_EQ(split.distance(3, 4), Distance::node);
  Topology wide = parsed("node:18 gpu:4 nvlink:72");
  EXPECT_EQ(wide.distance(0, 71), Distance::nvlink);
  EXPECT_EQ(parsed("gpu:4 nvlink:1").distance(0, 1), Distance::node);
}

TEST(Topology, RefusesNonsenseWithOneError) {
  for (const char* bad :
       {"node", "node:", "node:x", "node:0", "gpus:4", "node:1 node:2", "4", "order:back",
        "node:1 order:round 3", "rank:99999999", "rank:0", "node:-1", "node:1:2", "sharp:4"}) {
    const uint64_t before = log::count(log::Level::error);
    EXPECT_EQ(parse_topology(bad).status(), Status(Code::bad_setting)) << bad;
    EXPECT_EQ(log::count(log::Level::error), before + 1) << bad;
  }
}

TEST(Topology, HashSeesEveryFact) {
  std::set<uint64_t> seen;
  for (const char* text :
       {"node:2 gpu:4", "node:4 gpu:2", "node:2 gpu:4 nic:1", "node:2 gpu:4 nvlink:2",
        "node:2 gpu:4 nvlink:8", "node:2 gpu:4 order:round", "node:2 gpu:4 numa:2", "node:2 rank:4",
        "node:1 rank:8", "node:2 gpu:4 sharp:1", "node:2 gpu:4 sharp:2"})
    EXPECT_TRUE(seen.insert(parsed(text).hash()).second) << text;
  EXPECT_EQ(parsed("node:2 gpu:4").hash(), parsed("gpu:4,node:2").hash());
}

TEST(Topology, FlatAndRestricted) {
  Topology flat = Topology::flat(3);
  EXPECT_EQ(flat.node_count(), 3);
  EXPECT_EQ(flat.distance(0, 1), Distance::fabric);
  Topology part = parsed("node:2 gpu:2").restricted({3, 0});
  EXPECT_EQ(part.nranks, 2);
  EXPECT_EQ(part.node_of(0), 1);
  EXPECT_EQ(part.gpu_of(0), 1);
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream all;
  all << file.rdbuf();
  return all.str();
}

TEST(TopologyJson, ReadsEveryRecordedMachineAndWritesItBack) {
  int machines = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TEST_SRCDIR "/test/machines")) {
    if (entry.path().extension() != ".json") continue;
    ++machines;
    Result<Topology> t = parse_topology_json(contents(entry.path()));
    ASSERT_TRUE(t.ok()) << entry.path();
    Result<Topology> again = parse_topology_json(to_json(*t));
    ASSERT_TRUE(again.ok()) << entry.path();
    EXPECT_EQ(*again, *t) << entry.path();
    EXPECT_EQ(again->hash(), t->hash());
  }
  EXPECT_GE(machines, 10);
}

TEST(TopologyJson, RepeatedNodesHaveNvlinkDomainsOfTheirOwn) {
  Result<Topology> dgx = parse_topology_json(contents(TEST_SRCDIR "/test/machines/dgx-a100.json"));
  ASSERT_TRUE(dgx.ok());
  EXPECT_EQ(dgx->nranks, 16);
  EXPECT_EQ(dgx->distance(0, 7), Distance::nvlink);
  EXPECT_EQ(dgx->distance(0, 8), Distance::fabric);
  Result<Topology> rack = parse_topology_json(contents(TEST_SRCDIR "/test/machines/nvl72.json"));
  ASSERT_TRUE(rack.ok());
  EXPECT_EQ(rack->distance(0, 71), Distance::nvlink);
}

TEST(TopologyJson, KeepsWhatSwitchesCompute) {
  const Topology t = parsed("node:2 gpu:2 sharp:3");
  EXPECT_EQ(*parse_topology_json(to_json(t)), t);
  EXPECT_EQ(t.restricted({0, 2}).sharp, 3);
  EXPECT_EQ(Topology::flat(4).sharp, 0);
}

TEST(TopologyJson, RefusesNonsense) {
  for (const char* bad :
       {"", "{", "{}", "[]", R"({"nodes": []})", R"({"nodes": [{"count": 0}]})",
        R"({"nodes": [{"nics": [{}]}]})", R"({"nodes": [{}], "ranks": [{"node": 1}]})",
        R"({"nodes": [{}], "ranks": [{"node": 0, "gpu": 0}]})",
        R"({"nodes": [{"gpus": [{"numa": "x"}]}]})"})
    EXPECT_EQ(parse_topology_json(bad).status(), Status(Code::bad_setting)) << bad;
}

TEST(Topology, UnitsAreNodesOrDomainsThatSpanThem) {
  using Units = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(parse_topology("node:2 gpu:2 order:round")->units(), (Units{{0, 2}, {1, 3}}));
  EXPECT_EQ(parse_topology("node:2 gpu:4 nvlink:2")->units(), (Units{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(parse_topology("node:4 gpu:2 nvlink:4")->units(), (Units{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(Topology::flat(2).units(), (Units{{0}, {1}}));
}

TEST(Topology, EveryGpuHasANicWhereNothingIsSaid) {
  EXPECT_EQ(parse_topology("node:2 gpu:8")->nics_of({0, 1}), 8);
  EXPECT_EQ(parse_topology("node:2 gpu:8 nic:2")->nics_of({0, 1}), 2);
  EXPECT_EQ(parse_topology("node:2 gpu:8 nic:2")->nics_of({0, 8}), 4);
  EXPECT_EQ(parse_topology("node:2 rank:4")->nics_of({0}), 1);
  EXPECT_EQ(Topology::flat(3).nics_of({0, 1}), 1);
}

}  // namespace
}  // namespace tutti
