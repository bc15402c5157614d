#include "tune/shipped.hpp"

#include <gtest/gtest.h>

#include "tune/select.hpp"

namespace tutti {
namespace {

Topology even(int nodes, int ppn) {
  Topology topology;
  topology.nranks = nodes * ppn;
  topology.nodes.resize(static_cast<size_t>(nodes));
  for (int r = 0; r < topology.nranks; ++r) topology.ranks.push_back({r / ppn, -1});
  return topology;
}

Tuning only_measured() {
  Tuning tuning;
  tuning.table = shipped_rows(false);
  tuning.groups = true;
  tuning.measured_only = true;
  return tuning;
}

TEST(Shipped, EveryRowThatMatchesCanDoItsCall) {
  const Tuning tuning = only_measured();
  ASSERT_FALSE(tuning.table.empty());
  for (const TuneRule& row : tuning.table)
    for (int nodes = 2; nodes <= 8; ++nodes)
      for (int ppn : {1, 2, 5}) {
        Agreed agreed;
        agreed.coll = row.coll;
        agreed.dtype = Dtype::f32;
        agreed.count = row.bytes.least / 4 + 1;
        const Explanation why = explain(agreed, even(nodes, ppn), tuning);
        EXPECT_TRUE(why.passed_by.empty()) << why.passed_by[0];
      }
}

TEST(Shipped, WhatNobodyMeasuredGoesBelow) {
  Agreed agreed;
  agreed.dtype = Dtype::f32;
  agreed.count = 1 << 20;
  Tuning tuning = only_measured();
  EXPECT_NE(select(agreed, even(4, 2), tuning).algorithm, nullptr);
  EXPECT_EQ(select(agreed, even(100, 2), tuning).algorithm, nullptr);
  EXPECT_EQ(explain(agreed, even(100, 2), tuning).by, DecidedBy::unmeasured);
  agreed.coll = Coll::scan;
  EXPECT_EQ(select(agreed, even(4, 2), tuning).algorithm, nullptr);
  EXPECT_FALSE(may_choose(Coll::scan, tuning));
  EXPECT_TRUE(may_choose(Coll::allreduce, tuning));
  tuning.measured_only = false;
  EXPECT_NE(select(agreed, even(4, 2), tuning).algorithm, nullptr);
  EXPECT_TRUE(may_choose(Coll::scan, tuning));
  EXPECT_TRUE(shipped_rows(true).empty());
}

}  // namespace
}  // namespace tutti
