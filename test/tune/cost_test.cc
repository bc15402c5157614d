#include "tune/cost.hpp"

#include <gtest/gtest.h>

#include <string>

#include "coll/registry.hpp"

namespace tutti {
namespace {

Agreed call(Coll coll, uint64_t bytes) {
  Agreed agreed;
  agreed.coll = coll;
  agreed.dtype = Dtype::u8;
  agreed.count = coll == Coll::barrier ? 0 : bytes;
  return agreed;
}

TEST(Cost, EveryFigureNamesItsSource) {
  ASSERT_FALSE(cost_models().empty());
  for (const CostModel& model : cost_models()) {
    EXPECT_EQ(find_cost_model(model.name)->name, std::string(model.name));
    EXPECT_FALSE(figures(model).empty());
    for (const Figure& figure : figures(model)) {
      EXPECT_GT(figure.value, 0) << figure.name;
      EXPECT_GT(std::string(figure.source).size(), 8u) << figure.name;
    }
  }
  EXPECT_EQ(find_cost_model("no such model"), nullptr);
}

TEST(Cost, GrowsWithBytesAndRanks) {
  for (const Algorithm* algorithm : algorithms())
    for (Coll coll : algorithm->collectives) {
      const Params params = algorithm->standard_params();
      uint64_t before = 0;
      for (uint64_t bytes : {1, 1 << 10, 1 << 20, 1 << 26}) {
        const Agreed agreed = call(coll, bytes);
        const Topology t = *parse_topology("node:4 rank:4");
        const Scale scale(agreed, t);
        const uint64_t cost =
            cost_ns(algorithm->estimate(agreed, scale, params), scale, cost_models()[0]);
        EXPECT_GE(cost, before) << name(coll) << " " << algorithm->scheme;
        before = cost;
      }
      EXPECT_GT(before, 0u) << name(coll) << " " << algorithm->scheme;
    }
}

TEST(Cost, TheOverheadsOfAMessageArePartOfItsLatency) {
  for (const CostModel& model : cost_models())
    for (const LinkCost* link : {&model.node, &model.nvlink, &model.fabric}) {
      EXPECT_GT(link->send_ns, 0) << model.name;
      EXPECT_LE(link->send_ns + link->recv_ns, link->latency_ns) << model.name;
    }
}

// A root that hears every rank is held up by its core, whatever the network's latency hides.
TEST(Cost, ManyMessagesCostTheBusiestCore) {
  const Agreed agreed = call(Coll::gather, 1);
  const CostModel& model = cost_models()[0];
  const Algorithm& linear = *find_algorithm(Coll::gather, "linear");
  for (int nodes : {64, 1024}) {
    const Scale scale(agreed, Topology::flat(nodes));
    const uint64_t cost =
        cost_ns(linear.estimate(agreed, scale, linear.standard_params()), scale, model);
    EXPECT_GE(static_cast<double>(cost), (nodes - 1) * model.fabric.recv_ns);
  }
}

TEST(Cost, LatenciesOfOneWayAddUpAndBytesOverlap) {
  const Scale scale(call(Coll::bcast, 1), *parse_topology("node:2 rank:2"));
  const CostModel& model = cost_models()[0];
  Estimate e;
  e.near = {3, 1 << 20};
  e.far = {2, 1 << 20};
  e.chunks = 1 << 20;
  const double latencies = 3 * model.node.latency_ns + 2 * model.fabric.latency_ns;
  const double longer = (1 << 20) * model.node.ns_per_byte;
  e.in_turn = true;
  EXPECT_NEAR(static_cast<double>(cost_ns(e, scale, model)), latencies + longer, 2);
  e.in_turn = false;
  EXPECT_NEAR(static_cast<double>(cost_ns(e, scale, model)), 3 * model.node.latency_ns + longer, 2);
}

}  // namespace
}  // namespace tutti
