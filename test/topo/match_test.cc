// GPU-NIC matching: on recorded machines, and against trying every assignment on random nodes.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <sstream>

#include "base/text.hpp"
#include "topo/topology.hpp"

namespace tutti {
namespace {

Node machine(const std::string& name) {
  std::ifstream file(TEST_SRCDIR "/test/machines/" + name + ".json");
  std::stringstream all;
  all << file.rdbuf();
  Result<Topology> topology = parse_topology_json(all.str());
  EXPECT_TRUE(topology.ok()) << name;
  return topology.ok() ? topology->nodes[0] : Node{};
}

using Names = std::vector<std::vector<std::string>>;

Names matched(const std::string& name) {
  const Node node = machine(name);
  Names names;
  for (const auto& list : match_nics(node)) {
    names.emplace_back();
    for (int32_t nic : list) names.back().push_back(node.nics[static_cast<size_t>(nic)].name);
  }
  return names;
}

TEST(Match, DgxA100UsesItsEightComputeNics) {
  EXPECT_EQ(matched("dgx-a100"), (Names{{"mlx5_0"},
                                        {"mlx5_1"},
                                        {"mlx5_2"},
                                        {"mlx5_3"},
                                        {"mlx5_6"},
                                        {"mlx5_7"},
                                        {"mlx5_8"},
                                        {"mlx5_9"}}));
}

TEST(Match, DgxH100TakesTheNicUnderTheSameSwitch) {
  EXPECT_EQ(matched("dgx-h100"), (Names{{"mlx5_0"},
                                        {"mlx5_3"},
                                        {"mlx5_4"},
                                        {"mlx5_5"},
                                        {"mlx5_6"},
                                        {"mlx5_9"},
                                        {"mlx5_10"},
                                        {"mlx5_11"}}));
}

TEST(Match, FewNicsAreSharedByTheGpusNearThem) {
  EXPECT_EQ(matched("hgx-4nic"), (Names{{"mlx5_0"},
                                        {"mlx5_0"},
                                        {"mlx5_1"},
                                        {"mlx5_1"},
                                        {"mlx5_2"},
                                        {"mlx5_2"},
                                        {"mlx5_3"},
                                        {"mlx5_3"}}));
  const Names two = matched("hgx-2nic");
  for (size_t g = 0; g < 8; ++g) EXPECT_EQ(two[g][0], g < 4 ? "mlx5_0" : "mlx5_1");
  for (const auto& list : matched("cloud-1nic")) EXPECT_EQ(list.size(), 1u);
  for (const auto& list : matched("pcie-4gpu")) EXPECT_EQ(list.size(), 1u);
}

TEST(Match, ManyNicsBecomeStripes) {
  Result<Topology> t = parse_topology("gpu:2 nic:4");
  ASSERT_TRUE(t.ok());
  EXPECT_EQ(match_nics(t->nodes[0]), (std::vector<std::vector<int32_t>>{{0, 1}, {2, 3}}));
}

TEST(Match, NoNicNoGpuNoMatch) {
  EXPECT_EQ(match_nics(machine("h200-pair")), (std::vector<std::vector<int32_t>>{{}, {}}));
  EXPECT_TRUE(match_nics(Node{}).empty());
}

TEST(Match, SlowNicsStayOut) {
  Node node = parse_topology("gpu:2 nic:2")->nodes[0];
  node.nics[1].gbps = 25;
  for (const auto& list : match_nics(node)) EXPECT_EQ(list, std::vector<int32_t>{0});
}

// Least total distance over all assignments whose loads differ by one at most.
int64_t best_by_trying(const Node& node) {
  const size_t g = node.gpus.size(), n = node.nics.size();
  std::vector<size_t> choice(g, 0);
  int64_t best = -1;
  for (;;) {
    std::vector<size_t> load(n, 0);
    int64_t total = 0;
    for (size_t i = 0; i < g; ++i) {
      ++load[choice[i]];
      total += static_cast<int64_t>(distance(node.gpus[i].slot, node.nics[choice[i]].slot));
    }
    auto [least, most] = std::minmax_element(load.begin(), load.end());
    if (*most - *least <= 1 && (best < 0 || total < best)) best = total;
    size_t at = 0;
    while (at < g && ++choice[at] == n) choice[at++] = 0;
    if (at == g) return best;
  }
}

TEST(Match, IsBestAmongAllEvenAssignments) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(text("seed {}", seed));
  std::mt19937_64 random(seed);
  auto slot = [&] {
    const auto numa = static_cast<int32_t>(random() % 2), root = static_cast<int32_t>(random() % 2);
    return Slot{numa, 2 * numa + root, 4 * numa + 2 * root + static_cast<int32_t>(random() % 2)};
  };
  for (int trial = 0; trial < 200; ++trial) {
    Node node;
    const size_t g = 1 + random() % 6, n = 1 + random() % std::min<size_t>(g, 4);
    for (size_t i = 0; i < g; ++i) node.gpus.push_back({slot(), 0});
    for (size_t i = 0; i < n; ++i) node.nics.push_back({slot(), text("n{}", i), 100, true});
    const auto match = match_nics(node);
    std::vector<size_t> load(n, 0);
    int64_t total = 0;
    for (size_t i = 0; i < g; ++i) {
      ASSERT_EQ(match[i].size(), 1u);
      const auto nic = static_cast<size_t>(match[i][0]);
      ++load[nic];
      total += static_cast<int64_t>(distance(node.gpus[i].slot, node.nics[nic].slot));
    }
    auto [least, most] = std::minmax_element(load.begin(), load.end());
    EXPECT_LE(*most - *least, 1u);
    EXPECT_EQ(total, best_by_trying(node));
  }
}

}  // namespace
}  // namespace tutti
