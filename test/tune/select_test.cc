#include "tune/select.hpp"

#include <gtest/gtest.h>

#include <set>

#include "coll/in_network.hpp"

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

// In-network steps need switches, and something that runs such steps: without either, no rule, row or cost
// leads to one.
TEST(Select, SwitchesAreUsedOnlyWhereTheyAreAndSomethingDrivesThem) {
  const auto rules = *parse_rules(Coll::allreduce, "in_network; hierarchical,top=in_network");
  const auto table = *parse_table("barrier hierarchical,top=in_network\nbarrier in_network");
  for (const char* words : {"node:128", "node:128 rank:2", "node:128 gpu:8 nic:8"})
    for (int sharp : {0, 1, 2, 3})
      for (bool driven : {false, true})
        for (Coll coll : {Coll::allreduce, Coll::barrier})
          for (bool named : {false, true}) {
            Topology t = *parse_topology(words);
            t.sharp = sharp;
            Agreed agreed = call(coll, 64);
            agreed.dtype = Dtype::i32;
            Tuning tuning{.groups = true, .switches = driven};
            if (named) {
              tuning.rules = coll == Coll::allreduce ? std::span<const TuneRule>(rules)
                                                     : std::span<const TuneRule>();
              tuning.table = table;
            }
            const Explanation e = explain(agreed, t, tuning);
            const Choice choice = select(agreed, t, tuning);
            ASSERT_NE(choice.algorithm, nullptr);
            EXPECT_EQ(choice.algorithm, e.choice.algorithm);
            const bool used = uses_switches(*choice.algorithm, choice.params);
            // At 128 nodes their one step is faster than seven messages.
            EXPECT_EQ(used, driven && sharp != 0) << words << " " << sharp << " " << driven;
            for (const Candidate& c : e.candidates)
              EXPECT_TRUE((driven && sharp != 0) ||
                          !uses_switches(*c.choice.algorithm, c.choice.params));
          }
}

TEST(Select, SwitchesDoWhatTheirGenerationDoes) {
  Topology t = Topology::flat(4);
  const auto does = [&](int sharp, Dtype dtype, Op op, uint64_t count = 1, bool wide = false) {
    t.sharp = sharp;
    Agreed agreed;
    agreed.coll = Coll::allreduce;
    agreed.dtype = dtype;
    agreed.op = op;
    agreed.count = count;
    agreed.wide = wide;
    agreed.commutative = op != Op::user;
    return switches_do(agreed, t);
  };
  EXPECT_TRUE(does(1, Dtype::f32, Op::sum));
  EXPECT_FALSE(does(0, Dtype::f32, Op::sum));
  EXPECT_FALSE(does(1, Dtype::f32, Op::sum, 1000));
  EXPECT_TRUE(does(2, Dtype::f32, Op::sum, 1000));
  EXPECT_FALSE(does(1, Dtype::i16, Op::bxor));
  EXPECT_TRUE(does(2, Dtype::i16, Op::bxor));
  EXPECT_FALSE(does(2, Dtype::i8, Op::sum));
  EXPECT_TRUE(does(3, Dtype::i8, Op::sum));
  EXPECT_FALSE(does(3, Dtype::f16, Op::sum));
  EXPECT_TRUE(does(3, Dtype::f16, Op::sum, 1, true));
  for (Op op : {Op::prod, Op::minloc, Op::maxloc, Op::user}) EXPECT_FALSE(does(3, Dtype::i32, op));
  for (Dtype dtype : {Dtype::f80, Dtype::c32, Dtype::l32, Dtype::byte, Dtype::f32_i32})
    EXPECT_FALSE(does(3, dtype, Op::sum));
}

// Only InfiniBand has such switches: a model without figures for them never chooses them.
TEST(Select, NoFiguresNoChoiceByCost) {
  const CostModel* tcp = find_cost_model("tcp");
  const Choice choice = select(call(Coll::barrier, 0), *parse_topology("node:128 sharp:3"),
                               {.model = tcp, .groups = true, .switches = true});
  EXPECT_FALSE(uses_switches(*choice.algorithm, choice.params));
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
