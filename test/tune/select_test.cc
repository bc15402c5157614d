#include "tune/select.hpp"

#include <gtest/gtest.h>

#include <set>

namespace tutti {
namespace {

Agreed call(Coll coll, uint64_t bytes) {
  Agreed agreed;
  agreed.coll = coll;
  agreed.dtype = Dtype::u8;
  agreed.count = coll == Coll::barrier ? 0 : bytes;
  return agreed;
}

std::string scheme(const Choice& choice) {
  return choice.algorithm == nullptr ? "below" : choice.algorithm->scheme;
}

TEST(Select, RulesGoBeforeTablesAndTablesBeforeCost) {
  const auto rules = *parse_rules(Coll::allreduce, "below @ ..1k; rabenseifner @ 1m..");
  const auto table = *parse_table("allreduce double_tree @ 512..");
  const Topology t = *parse_topology("node:4 rank:4");
  const Tuning tuning{.rules = rules, .table = table};
  EXPECT_EQ(scheme(select(call(Coll::allreduce, 1024), t, tuning)), "below");
  EXPECT_EQ(scheme(select(call(Coll::allreduce, 2048), t, tuning)), "double_tree");
  EXPECT_EQ(scheme(select(call(Coll::allreduce, 1 << 20), t, tuning)), "rabenseifner");
  EXPECT_EQ(explain(call(Coll::allreduce, 2048), t, tuning).by, DecidedBy::table);
  EXPECT_EQ(explain(call(Coll::allreduce, 1024), t, tuning).by, DecidedBy::rule);
  EXPECT_EQ(explain(call(Coll::allreduce, 8), t, {}).by, DecidedBy::cost);
}

TEST(Select, ARuleThatCannotDoTheCallIsPassedByAndSaid) {
  const auto rules = *parse_rules(Coll::allreduce, "ring; knomial,radix=2");
  Agreed ordered = call(Coll::allreduce, 4096);
  ordered.op = Op::user;
  ordered.commutative = false;
  const Topology t = Topology::flat(4);
  Explanation e = explain(ordered, t, {.rules = rules});
  EXPECT_EQ(scheme(e.choice), "knomial");
  EXPECT_EQ(e.passed_by, std::vector<std::string>{"ring"});
}

TEST(Select, ExplainSaysWhatSelectDoes) {
  for (const char* words : {"rank:1", "rank:7", "gpu:8 nic:8", "node:2 gpu:8 nic:4",
                            "node:32 gpu:8", "node:16 rank:1", "node:3 rank:5,2,7"}) {
    const Topology t = *parse_topology(words);
    for (size_t c = 0; c < coll_count; ++c)
      for (uint64_t bytes : {0, 8, 4096, 1 << 20, 64 << 20})
        for (bool groups : {false, true}) {
          const Agreed agreed = call(static_cast<Coll>(c), bytes);
          const Tuning tuning{.groups = groups};
          const Explanation e = explain(agreed, t, tuning);
          const Choice choice = select(agreed, t, tuning);
          EXPECT_EQ(e.choice.algorithm, choice.algorithm);
          EXPECT_EQ(e.choice.params, choice.params);
          ASSERT_NE(choice.algorithm, nullptr) << words << " " << name(agreed.coll);
          EXPECT_TRUE(choice.algorithm->applies(agreed, t, choice.params));
          EXPECT_FALSE(print(e).empty());
        }
  }
}

TEST(Select, OrderedOperationsGetWhatKeepsTheirOrder) {
  Agreed ordered = call(Coll::reduce_scatter_block, 1 << 20);
  ordered.op = Op::user;
  ordered.commutative = false;
  EXPECT_EQ(scheme(select(ordered, Topology::flat(6), {})), "pairwise");
}

TEST(Select, GroupStepsAreChosenOnlyWhereTheyWork) {
  const Topology t = *parse_topology("node:4 gpu:8 nic:8");
  for (const Candidate& c : explain(call(Coll::allreduce, 64 << 20), t, {}).candidates)
    if (scheme(c.choice) == "hierarchical") {
      EXPECT_EQ(c.choice.params[1], 0u);
    }
  const Choice choice = select(call(Coll::allreduce, 64 << 20), t, {.groups = true});
  EXPECT_EQ(scheme(choice), "hierarchical");
  EXPECT_EQ(choice.params[1], 1u);
}

// What the field agrees on, as a check of the model's shape.
TEST(Select, ShortMessagesTakeFewStepsLongOnesFewBytes) {
  const Topology flat = Topology::flat(16);
  const std::set<std::string> few_steps = {"recursive_doubling", "knomial"};
  const std::set<std::string> few_bytes = {"ring", "rabenseifner", "double_tree"};
  EXPECT_TRUE(few_steps.count(scheme(select(call(Coll::allreduce, 8), flat, {}))));
  EXPECT_TRUE(few_bytes.count(scheme(select(call(Coll::allreduce, 64 << 20), flat, {}))));
  EXPECT_EQ(scheme(select(call(Coll::alltoall, 8), Topology::flat(64), {})), "bruck");
  EXPECT_EQ(scheme(select(call(Coll::alltoall, 1 << 20), Topology::flat(64), {})), "pairwise");
}

// What one who knows the machines would choose, by size and shape: any of the schemes, by group steps
// inside nodes where there are some.
TEST(Select, EachRegimeHasItsWinners) {
  using Schemes = std::set<std::string>;
  struct Regime {
    Coll coll;
    const char* topology;
    uint64_t least, most;  // bytes of the vector, or of all blocks
    Schemes schemes;
  };
  const Schemes steps = {"recursive_doubling", "knomial"}, levels = {"hierarchical"};
  const Schemes bytes = {"ring", "rabenseifner", "double_tree"};
  constexpr uint64_t kib = 1 << 10, mib = 1 << 20, gib = 1 << 30;
  const Regime regimes[] = {
      {Coll::allreduce, "node:4", 8, kib, steps},
      {Coll::allreduce, "node:4", mib, gib, bytes},
      {Coll::allreduce, "node:4 rank:2", mib, gib, levels},
      {Coll::allreduce, "gpu:2", 16 * mib, gib, levels},
      {Coll::allreduce, "gpu:8", mib, gib, levels},
      {Coll::allreduce, "node:2 gpu:8 nic:8", mib, gib, levels},
      {Coll::allreduce, "node:32 gpu:8 nic:8", mib, gib, levels},
      {Coll::allreduce, "node:512 gpu:8 nic:8", 8, kib, steps},
      {Coll::allreduce, "node:512 gpu:8 nic:8", mib, gib, levels},
      {Coll::bcast, "node:4", 8, kib, {"binomial", "knomial"}},
      {Coll::bcast, "node:4", mib, gib, {"chain", "scatter_allgather"}},
      {Coll::bcast, "node:32 gpu:8 nic:8", mib, gib, levels},
      {Coll::reduce, "node:4", 8, kib, {"binomial", "knomial"}},
      {Coll::reduce, "node:4", mib, gib, {"chain", "rabenseifner"}},
      {Coll::reduce, "node:32 gpu:8 nic:8", mib, gib, {"rabenseifner", "hierarchical"}},
      {Coll::allgather, "node:4", 8, kib, {"bruck", "recursive_doubling", "pat"}},
      {Coll::allgather, "node:32 gpu:8 nic:8", kib, gib, levels},
      {Coll::allgather, "node:512 gpu:8 nic:8", mib, gib, levels},
      {Coll::reduce_scatter_block, "node:4", mib, gib, {"pairwise", "ring", "halving"}},
      {Coll::reduce_scatter_block, "node:32 gpu:8 nic:8", mib, gib, levels},
      {Coll::gather, "node:4", 8, gib, {"binomial", "linear"}},
      {Coll::gather, "node:512 gpu:8 nic:8", 64 * kib, mib, {"binomial", "hierarchical"}},
      {Coll::scatter, "node:512 gpu:8 nic:8", 64 * kib, mib, {"binomial", "hierarchical"}},
      {Coll::alltoall, "node:512 gpu:8 nic:8", 64 * kib, 64 * kib, {"bruck", "hierarchical"}},
      {Coll::alltoall, "node:4", mib, gib, {"pairwise"}},
      {Coll::scan, "node:4", 8, kib, {"recursive_doubling"}},
      {Coll::scan, "node:4", 16 * mib, gib, {"chain"}},
      {Coll::barrier, "node:4", 0, 0, {"dissemination"}},
      {Coll::barrier, "node:32 gpu:8 nic:8", 0, 0, levels},
  };
  for (const Regime& regime : regimes) {
    const Topology t = *parse_topology(regime.topology);
    const bool blocks = regime.coll == Coll::allgather || regime.coll == Coll::gather ||
                        regime.coll == Coll::scatter || regime.coll == Coll::alltoall ||
                        regime.coll == Coll::reduce_scatter_block;
    for (uint64_t whole = regime.least; whole <= regime.most;
         whole = std::max<uint64_t>(1, whole) * 4) {
      const auto ranks = static_cast<uint64_t>(t.nranks);
      const Agreed agreed =
          call(regime.coll, blocks ? std::max<uint64_t>(1, whole / ranks) : whole);
      const Choice choice = select(agreed, t, {.groups = true});
      EXPECT_TRUE(regime.schemes.count(scheme(choice)))
          << name(regime.coll) << " on " << regime.topology << ", " << whole
          << " bytes: " << scheme(choice);
    }
  }
}

TEST(Select, RailsBringALongAllreduceOfManyGpusUnderAMillisecond) {
  const Explanation e =
      explain(call(Coll::allreduce, 64 << 20), *parse_topology("node:32,gpu:8"), {.groups = true});
  EXPECT_EQ(scheme(e.choice), "hierarchical");
  EXPECT_EQ(e.choice.params[1], 1u);  // by group steps
  EXPECT_EQ(e.choice.params[3], 0u);  // on all rails
  EXPECT_LT(e.candidates[0].cost_ns, 1000000u);
}

TEST(Select, TiesGoToTheFirstInTheRegistry) {
  // Nothing moves: every cost of one rank is nil or equal.
  const Explanation e = explain(call(Coll::allreduce, 0), Topology::flat(1), {});
  for (size_t i = 1; i < e.candidates.size(); ++i)
    if (e.candidates[i].applies && e.candidates[i].cost_ns == e.candidates[i - 1].cost_ns) {
      auto all = algorithms();
      auto at = [&](size_t k) {
        return std::find(all.begin(), all.end(), e.candidates[k].choice.algorithm) - all.begin();
      };
      EXPECT_LE(at(i - 1), at(i));
    }
}

// No time is asserted here: sanitizers and busy machines are slower than any useful bound.
TEST(Select, ChoosesAlikeAtFourThousandRanks) {
  const Topology t = *parse_topology("node:512 gpu:8 nic:8");
  const auto first = select(call(Coll::allreduce, 1 << 20), t, {});
  ASSERT_NE(first.algorithm, nullptr);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(select(call(Coll::allreduce, 1 << 20), t, {}).algorithm, first.algorithm);
}

}  // namespace
}  // namespace tutti
