// Proves every registered algorithm: for P = 1..33, awkward counts, roots, places and orders.
#include "coll/registry.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include "call.hpp"
#include "exclusion.hpp"

namespace tutti {
namespace {

constexpr int max_ranks = 33;

uint64_t seed() {
  static const uint64_t value = [] {
    const char* given = std::getenv("TEST_SEED");
    uint64_t chosen = given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    fprintf(stderr, "TEST_SEED=%llu\n", static_cast<unsigned long long>(chosen));
    return chosen;
  }();
  return value;
}

// Parameters at their standard, and each at its least and at values that cut small vectors. Sizes of
// compositions are of all blocks together; cutting each into single elements proves little more and
// takes long.
std::vector<Params> variants(const Algorithm& algorithm, int nranks) {
  const bool composition = std::string_view(algorithm.scheme) == "hierarchical";
  std::vector<Params> all = {algorithm.standard_params()};
  for (size_t i = 0; i < algorithm.parameters.size(); ++i) {
    const Param& param = algorithm.parameters[i];
    for (uint64_t value : {param.least, uint64_t{3}, uint64_t{16}}) {
      if (composition && param.unit == Param::Unit::bytes) {
        if (nranks > 5 && value != 16) continue;
        value *= static_cast<uint64_t>(nranks);
      }
      if (value < param.least || value > param.most) continue;
      Params params = algorithm.standard_params();
      params.values[i] = value;
      if (std::find(all.begin(), all.end(), params) == all.end()) all.push_back(params);
    }
  }
  return all;
}

// One rank a node, or several; with switches that compute and without.
Topology shape(int nranks, uint64_t draw) {
  // Draws of one number go with whether the operation commutes.
  draw = (draw * 0x9e3779b97f4a7c15) >> 32;
  Topology topology = Topology::flat(nranks);
  topology.sharp = static_cast<int>(draw / 28 % 4);
  const auto each = static_cast<int>(draw % 4 == 0 ? 1 : 2 + draw / 4 % 7);
  for (int r = 0; r < nranks && each > 1; ++r) topology.ranks.push_back({r / each, -1});
  return topology;
}

void prove(const Algorithm& algorithm, const Call& call, const Params& params, uint64_t draw,
           Tally& tally) {
  const Topology topology = shape(static_cast<int>(call.problems().size()), draw);
  const std::string reason = reason_to_exclude(algorithm, call.agreed(), topology, params);
  ASSERT_EQ(algorithm.applies(call.agreed(), topology, params), reason.empty())
      << algorithm.scheme << " " << call.describe() << ": " << reason;
  if (!reason.empty()) {
    tally.exclude(reason, text("P={}", call.problems().size()));
    return;
  }
  std::vector<Schedule> all = schedules(algorithm, call, topology, params);
  ASSERT_FALSE(all.empty()) << algorithm.scheme << " " << call.describe();
  Verdict verdict = verify(call.problems(), all);
  ASSERT_TRUE(verdict.proven) << algorithm.scheme << " " << call.describe() << ": " << verdict.text;
  tally.prove();
}

std::set<uint64_t> counts(int nranks) {
  const auto p = static_cast<uint64_t>(nranks);
  return {0, 1, p - 1, 2 * p + 1, 67};
}

class EveryAlgorithm : public testing::TestWithParam<const Algorithm*> {};

TEST_P(EveryAlgorithm, IsProven) {
  const Algorithm& algorithm = *GetParam();
  for (Coll coll : algorithm.collectives) {
    Tally tally;
    uint64_t draw = seed();
    for (int nranks = 1; nranks <= max_ranks; ++nranks)
      for (const Params& params : variants(algorithm, nranks))
        for (uint64_t count : counts(nranks))
          for (bool commutative : {true, false}) {
            if (!commutative && !reduces(coll)) continue;
            ++draw;
            prove(algorithm, Call(coll, nranks, count, commutative, draw), params, draw, tally);
            if (HasFatalFailure()) return;
          }
    EXPECT_GT(tally.proven(), 0u);
    RecordProperty(std::string(name(coll)) + "_proven", std::to_string(tally.proven()));
    RecordProperty(std::string(name(coll)) + "_excluded", std::to_string(tally.excluded()));
    tally.print(name(coll), algorithm.scheme);
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryAlgorithm,
                         testing::ValuesIn(algorithms().begin(), algorithms().end()),
                         [](const auto& info) {
                           return std::string(name(info.param->collectives[0])) + "_" +
                                  info.param->scheme;
                         });

TEST(Registry, FindsByCollectiveAndScheme) {
  const Algorithm* found = find_algorithm(Coll::allreduce, "recursive_doubling");
  ASSERT_NE(found, nullptr);
  EXPECT_STREQ(found->scheme, "recursive_doubling");
  EXPECT_EQ(find_algorithm(Coll::barrier, "recursive_doubling"), nullptr);
  EXPECT_EQ(find_algorithm(Coll::allreduce, "no such scheme"), nullptr);
}

TEST(Registry, NamesAreUniqueAndDocumented) {
  std::set<std::pair<Coll, std::string>> seen;
  for (const Algorithm* algorithm : algorithms()) {
    EXPECT_NE(std::string(algorithm->doc), "");
    EXPECT_LE(algorithm->parameters.size(), Params::limit);
    for (Coll coll : algorithm->collectives)
      EXPECT_TRUE(seen.emplace(coll, algorithm->scheme).second) << algorithm->scheme;
  }
}

}  // namespace
}  // namespace tutti
