#include "tune/rules.hpp"

#include <gtest/gtest.h>

#include "base/log.hpp"

namespace tutti {
namespace {

Agreed allreduce(uint64_t bytes) {
  Agreed agreed;
  agreed.coll = Coll::allreduce;
  agreed.dtype = Dtype::u8;
  agreed.count = bytes;
  return agreed;
}

std::vector<TuneRule> parsed(std::string_view text) {
  Result<std::vector<TuneRule>> rules = parse_rules(Coll::allreduce, text);
  EXPECT_TRUE(rules.ok()) << text;
  return rules.ok() ? *rules : std::vector<TuneRule>{};
}

TEST(Rules, NothingIsNoRule) {
  EXPECT_TRUE(parsed("").empty());
  EXPECT_TRUE(parsed("  ; ").empty());
  EXPECT_EQ(parsed("ring;").size(), 1u);
}

TEST(Rules, SchemeParametersAndConditions) {
  auto rules = parsed("below @ ..4k; ring,chunk=1m @ 1m.. nodes=2.. ; knomial,radix=8");
  ASSERT_EQ(rules.size(), 3u);
  EXPECT_EQ(rules[0].algorithm, nullptr);
  EXPECT_EQ(rules[0].bytes, (Range{0, 4096}));
  EXPECT_STREQ(rules[1].algorithm->scheme, "ring");
  EXPECT_EQ(rules[1].params[0], uint64_t{1} << 20);
  EXPECT_EQ(rules[1].bytes.least, uint64_t{1} << 20);
  EXPECT_EQ(rules[1].nodes.least, 2u);
  EXPECT_EQ(rules[2].params[0], 8u);
  EXPECT_EQ(rules[2].bytes, Range{});
}

TEST(Rules, ChoicesGoByName) {
  auto rules = parsed("hierarchical,top=ring,inner=groups,rails=2");
  ASSERT_EQ(rules.size(), 1u);
  EXPECT_EQ(rules[0].params[1], 1u);
  EXPECT_EQ(rules[0].params[2], 2u);
  EXPECT_EQ(describe(*rules[0].algorithm, rules[0].params), "inner=groups,top=ring,rails=2");
  EXPECT_EQ(describe(*rules[0].algorithm, rules[0].algorithm->standard_params()), "");
}

TEST(Rules, DescribeCanBeParsedAgain) {
  auto rules = parsed("ring,chunk=3m");
  auto again = parsed("ring," + describe(*rules[0].algorithm, rules[0].params));
  EXPECT_EQ(again[0].params, rules[0].params);
}

TEST(Rules, ConditionsMatchWhatTheySay) {
  auto rules = parsed("ring @ 1k..2k nodes=2 ranks=..16 ppn=4..");
  const TuneRule& rule = rules[0];
  const Topology two = *parse_topology("node:2 rank:4"), one = *parse_topology("rank:8");
  const Topology thin = *parse_topology("node:2 rank:2"), many = *parse_topology("node:2 rank:9");
  EXPECT_TRUE(rule.matches(allreduce(1024), two));
  EXPECT_TRUE(rule.matches(allreduce(2048), two));
  EXPECT_FALSE(rule.matches(allreduce(1023), two));
  EXPECT_FALSE(rule.matches(allreduce(2049), two));
  EXPECT_FALSE(rule.matches(allreduce(1024), one));
  EXPECT_FALSE(rule.matches(allreduce(1024), thin));
  EXPECT_FALSE(rule.matches(allreduce(1024), many));
  Agreed other = allreduce(1024);
  other.coll = Coll::reduce;
  EXPECT_FALSE(rule.matches(other, two));
}

TEST(Rules, RefuseNonsenseWithOneError) {
  for (const char* bad : {"rnig", "ring,chunk", "ring,chunk=", "ring,chunk=x", "ring,chunk=0",
                          "ring,radix=2", "knomial,radix=1", "ring @", "ring @ x..", "ring @ ..",
                          "ring @ 2k..1k", "ring @ 1q", "ring @ nodes=", "below,chunk=1m",
                          "hierarchical,top=none", "ring,", "ring @ 99999999999g", "@ 1k"}) {
    const uint64_t before = log::count(log::Level::error);
    EXPECT_EQ(parse_rules(Coll::allreduce, bad).status(), Status(Code::bad_setting)) << bad;
    EXPECT_EQ(log::count(log::Level::error), before + 1) << bad;
  }
}

TEST(Table, RowsNameTheirCollective) {
  Result<std::vector<TuneRule>> rows = parse_table(
      "# measured somewhere\n"
      "allreduce ring,chunk=1m @ 1m.. nodes=2   # a comment\n"
      "\n"
      "bcast chain @ 4m..\r\n");
  ASSERT_TRUE(rows.ok());
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].coll, Coll::allreduce);
  EXPECT_EQ((*rows)[1].coll, Coll::bcast);
  EXPECT_STREQ((*rows)[1].algorithm->scheme, "chain");
  EXPECT_EQ(parse_table("allreduse ring").status(), Status(Code::bad_setting));
  EXPECT_EQ(parse_table("bcast pairwise").status(), Status(Code::bad_setting));
}

TEST(Rules, BytesAreOfTheVectorOrOfABlock) {
  Agreed agreed = allreduce(100);
  EXPECT_EQ(rule_bytes(agreed, 4), 100u);
  agreed.coll = Coll::reduce_scatter_block;
  EXPECT_EQ(rule_bytes(agreed, 4), 400u);
  agreed.coll = Coll::allgatherv;
  const uint64_t counts[] = {0, 10, 20, 10};
  agreed.counts = counts;
  EXPECT_EQ(rule_bytes(agreed, 4), 10u);
}

}  // namespace
}  // namespace tutti
