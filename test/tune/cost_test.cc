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

}  // namespace
}  // namespace tutti
