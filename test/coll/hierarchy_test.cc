// Proves compositions over levels on node shapes: regular, uneven, ranks dealt round, GPUs shared,
// few NICs, no GPUs, recorded machines, and shapes drawn at random.
#include "coll/hierarchy.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "call.hpp"
#include "exclusion.hpp"

namespace tutti {
namespace {

struct Shape {
  std::string name;
  Topology topology;
};

std::vector<Shape> described() {
  std::vector<Shape> shapes;
  for (const char* words : {"node:2 gpu:2",
                            "node:2 gpu:4 nic:4",
                            "node:2 gpu:8 nic:4",
                            "node:2 gpu:8 nic:8",
                            "node:3 gpu:4 nic:1",
                            "node:4 gpu:2 nic:2",
                            "node:4 gpu:4",
                            "node:5 gpu:3 nic:2",
                            "node:8 gpu:2",
                            "node:3 rank:4",
                            "node:4 rank:1,2,3,4",
                            "node:2 rank:8",
                            "node:7 rank:3",
                            "rank:6",
                            "gpu:4",
                            "gpu:2 rank:6",
                            "gpu:8 nvlink:4",
                            "gpu:8 nvlink:2 rank:16",
                            "node:2 gpu:4 nvlink:2 nic:1",
                            "node:2 gpu:4 nvlink:8",
                            "node:3 gpu:2 nvlink:6",
                            "node:2 gpu:2 rank:6 nic:2",
                            "node:3 gpu:2,0,4",
                            "node:3 gpu:4,2,1 nic:2,1,1",
                            "node:2 gpu:4 order:round",
                            "node:3 gpu:2 rank:4 order:round",
                            "node:4 rank:3,1,2,3 order:round",
                            "node:2 gpu:4 nvlink:2 rank:8 order:round",
                            "node:2 gpu:3 nic:2 order:round",
                            "node:16 rank:2",
                            "node:3 gpu:0,4 rank:5,4",
                            "node:2 gpu:4 nic:4 sharp:3",
                            "node:5 rank:3 sharp:2",
                            "node:3 gpu:2,0,4 sharp:2",
                            "node:3 gpu:4,2,1 nic:2,1,1 sharp:1",
                            "node:4 gpu:2 nvlink:4 sharp:3",
                            "node:3 gpu:2 rank:4 order:round sharp:2",
                            "node:4 rank:1 sharp:2",
                            "node:33 rank:1"}) {
    Result<Topology> topology = parse_topology(words);
    EXPECT_TRUE(topology.ok()) << words;
    shapes.push_back({words, *topology});
  }
  return shapes;
}

std::vector<Shape> recorded() {
  std::vector<Shape> shapes;
  for (const auto& entry : std::filesystem::directory_iterator(TEST_SRCDIR "/test/machines")) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    std::stringstream all;
    all << file.rdbuf();
    Result<Topology> topology = parse_topology_json(all.str());
    EXPECT_TRUE(topology.ok()) << entry.path();
    shapes.push_back({entry.path().stem(), *topology});
  }
  return shapes;
}

// Ranks thrown on nodes with random GPUs, domains and NICs.
std::vector<Shape> drawn(uint64_t seed, int count) {
  std::mt19937_64 random(seed);
  auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  std::vector<Shape> shapes;
  for (int i = 0; i < count; ++i) {
    Topology t;
    t.nranks = static_cast<int>(1 + below(20));
    const size_t nodes = 1 + below(5);
    int32_t domain = 0;
    for (size_t n = 0; n < nodes; ++n) {
      Node node;
      const size_t gpus = below(5), wide = 1 + below(4);
      for (size_t g = 0; g < gpus; ++g)
        node.gpus.push_back({{}, wide > 1 ? domain + static_cast<int32_t>(g / wide) : -1});
      domain += 8;
      for (size_t k = below(4); k-- > 0;) node.nics.push_back({{}, text("n{}", k), 100, true});
      t.nodes.push_back(node);
    }
    for (int r = 0; r < t.nranks; ++r) {
      const size_t n = below(nodes), gpus = t.nodes[n].gpus.size();
      t.ranks.push_back({static_cast<int32_t>(n), static_cast<int32_t>(below(gpus + 1)) - 1});
    }
    shapes.push_back({text("drawn {}", i), t});
  }
  return shapes;
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = [] {
    const uint64_t seed = std::random_device{}();
    fprintf(stderr, "seed of drawn shapes: %llu\n", static_cast<unsigned long long>(seed));
    std::vector<Shape> list = described();
    for (const auto& more : {recorded(), drawn(seed, 40)})
      list.insert(list.end(), more.begin(), more.end());
    return list;
  }();
  return all;
}

// Every value of the choices, a few of the numbers.
std::vector<Params> variants(const Algorithm& algorithm, uint64_t draw, uint64_t nranks) {
  // Cuts of blocks are of all of them together; many of many ranks prove little more and take long.
  const uint64_t short_bytes = nranks > 40 ? 48 * nranks : nranks > 8 ? 12 * nranks : 48;
  std::vector<Params> all = {algorithm.standard_params()};
  for (size_t i = 0; i < algorithm.parameters.size(); ++i) {
    const Param& param = algorithm.parameters[i];
    std::vector<Params> next;
    for (const Params& params : all) {
      std::vector<uint64_t> values = {param.standard};
      if (param.unit == Param::Unit::bytes) values = {draw % 2 == 0 ? short_bytes : param.standard};
      if (param.unit == Param::Unit::number) values = {draw % 3};
      if (param.unit == Param::Unit::choice) {
        values.clear();
        for (uint64_t v = param.least; v <= param.most; ++v) values.push_back(v);
      }
      for (uint64_t value : values) {
        next.push_back(params);
        next.back().values[i] = value;
      }
    }
    all = next;
  }
  return all;
}

// Collectives that have a composition.
std::vector<Coll> composed() {
  std::vector<Coll> all;
  for (size_t c = 0; c < coll_count; ++c)
    if (find_algorithm(static_cast<Coll>(c), "hierarchical") != nullptr)
      all.push_back(static_cast<Coll>(c));
  return all;
}

class Hierarchy : public testing::TestWithParam<Coll> {};

TEST_P(Hierarchy, IsProvenOnEveryShape) {
  const Algorithm* algorithm = find_algorithm(GetParam(), "hierarchical");
  uint64_t draw = std::random_device{}(), flat = 0;
  Tally tally;
  SCOPED_TRACE(text("seed {}", draw));
  for (const Shape& shape : shapes()) {
    const auto nranks = static_cast<uint64_t>(shape.topology.nranks);
    if (!has_levels(shape.topology)) ++flat;
    // On the largest machines, whose proofs take longest, some eight of the calls, others each time.
    const std::vector<Params> all_params = variants(*algorithm, draw, nranks);
    const uint64_t calls = all_params.size() * 4 * (reduces(GetParam()) ? 2 : 1);
    const uint64_t every = nranks > 40 ? std::max<uint64_t>(1, calls / 8) : 1;
    uint64_t turn = draw;
    for (const Params& params : all_params)
      for (uint64_t count : {uint64_t{0}, uint64_t{1}, nranks + 3, uint64_t{101}})
        for (bool commutative : {true, false}) {
          if (!commutative && !reduces(GetParam())) continue;
          if (++turn % every != 0) continue;
          Call call(GetParam(), shape.topology.nranks, count, commutative, ++draw);
          const std::string reason =
              reason_to_exclude(*algorithm, call.agreed(), shape.topology, params);
          ASSERT_EQ(algorithm->applies(call.agreed(), shape.topology, params), reason.empty())
              << shape.name << " " << call.describe() << ": " << reason;
          if (!reason.empty()) {
            tally.exclude(reason, shape.name);
            continue;
          }
          std::vector<Schedule> all = schedules(*algorithm, call, shape.topology, params);
          ASSERT_FALSE(all.empty()) << shape.name << " " << call.describe();
          Verdict verdict = verify(call.problems(), all);
          ASSERT_TRUE(verdict.proven)
              << shape.name << " " << call.describe() << " params " << params.values[0] << ","
              << params.values[1] << "," << params.values[2] << "," << params.values[3] << ": "
              << verdict.text;
          tally.prove();
        }
  }
  EXPECT_GT(tally.proven(), 0u);
  printf("%zu shapes, %llu without levels\n", shapes().size(),
         static_cast<unsigned long long>(flat));
  tally.print(name(GetParam()), algorithm->scheme);
}

INSTANTIATE_TEST_SUITE_P(Levels, Hierarchy, testing::ValuesIn(composed()),
                         [](const auto& info) { return std::string(name(info.param)); });

// What has no composition: its ranks cannot know the sizes of blocks that they would pass on.
TEST(Hierarchy, IsMissingOnlyWhereSizesAreUnknown) {
  std::set<Coll> missing;
  for (size_t c = 0; c < coll_count; ++c) missing.insert(static_cast<Coll>(c));
  for (Coll coll : composed()) missing.erase(coll);
  EXPECT_EQ(missing,
            (std::set<Coll>{Coll::gatherv, Coll::scatterv, Coll::alltoallv, Coll::alltoallw}));
}

TEST(Plan, SlicesFollowTheSmallestUnitAndTheNics) {
  const Topology even = *parse_topology("node:2 gpu:4 nic:4");
  Plan plan = plan_levels(even, 5, 0, -1);
  ASSERT_EQ(plan.tiers.size(), 1u);
  EXPECT_EQ(plan.tiers[0].level, Level::nvlink);
  EXPECT_EQ(plan.tiers[0].slices, 4);
  EXPECT_EQ(plan.team, (std::vector<int32_t>{1, 5}));
  plan = plan_levels(*parse_topology("node:2 rank:4,2"), 3, 0, -1);
  EXPECT_EQ(plan.tiers[0].slices, 2);
  EXPECT_TRUE(plan.team.empty());
}

TEST(Plan, FewNicsMeanFewSlicesOwnedByTheirGpus) {
  const Topology t = *parse_topology("node:2 gpu:8 nvlink:1 nic:2 numa:2");
  EXPECT_EQ(plan_levels(t, 0, 0, -1).tiers[0].slices, 2);
  // GPUs 0..3 share the first NIC, 4..7 the second: one of each owns a slice.
  EXPECT_EQ(plan_levels(t, 0, 0, -1).tiers[0].owner_of, (std::vector<int32_t>{0, 4}));
  EXPECT_EQ(plan_levels(t, 4, 0, -1).team, (std::vector<int32_t>{4, 12}));
}

TEST(Plan, TheRootOwnsItsSlice) {
  const Topology t = *parse_topology("node:3 rank:4");
  EXPECT_EQ(plan_levels(t, 6, 1, 6).team, (std::vector<int32_t>{0, 6, 8}));
}

TEST(Plan, OwnersInTheRootsUnitAreSourcesOfTheirSlices) {
  const Topology t = *parse_topology("node:3 gpu:4 nic:4");
  for (int rank = 0; rank < t.nranks; ++rank) {
    const Plan plan = plan_levels(t, rank, 0, 6);
    ASSERT_EQ(plan.tiers.size(), 1u);
    EXPECT_EQ(plan.tiers[0].slices, 4);
    EXPECT_EQ(plan.tiers[0].source, t.node_of(rank) == 1 ? 6 : -1);
    // Of the team of the same GPU on every node the one on the root's.
    EXPECT_EQ(plan.source, 4 + rank % 4);
  }
}

// On as many rails as there are NICs, a rank of the root's node sends no more than its slice off the node.
TEST(Bcast, SpreadsOverAllRails) {
  const Topology t = *parse_topology("node:2 gpu:4 nic:4");
  const Algorithm& algorithm = *find_algorithm(Coll::bcast, "hierarchical");
  for (uint64_t rails : {0, 1, 2}) {
    Params params = algorithm.standard_params();
    params.values[3] = rails;
    Problem problem;
    problem.agreed.coll = Coll::bcast;
    problem.agreed.dtype = Dtype::byte;
    problem.agreed.count = 4096;
    uint64_t most = 0, all = 0;
    for (int r = 0; r < 4; ++r) {
      Schedule s;
      ASSERT_TRUE(generate(algorithm, problem, Place{r, t, params}, s).ok());
      uint64_t away = 0;
      for (const Step& step : s.steps)
        if (step.kind == StepKind::send && t.node_of(step.peer) == 1) away += step.from.count;
      most = std::max(most, away);
      all += away;
    }
    EXPECT_EQ(all, 4096u);
    EXPECT_EQ(most, 4096 / (rails == 0 ? 4 : rails));
  }
}

}  // namespace
}  // namespace tutti
