// The specification itself, by cases worked out by hand: verify takes it on trust.
#include "sched/contract.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

Problem of(Coll coll, uint64_t count, int root = 0) {
  Problem problem;
  problem.agreed.coll = coll;
  problem.agreed.count = count;
  problem.agreed.root = root;
  return problem;
}

TEST(Contract, ExtentsOfRootedCollectives) {
  EXPECT_EQ(extent(of(Coll::reduce, 5, 1), 1, 4).output, 5u);
  EXPECT_EQ(extent(of(Coll::reduce, 5, 1), 0, 4).output, 0u);
  EXPECT_EQ(extent(of(Coll::gather, 5, 1), 1, 4).output, 20u);
  EXPECT_EQ(extent(of(Coll::scatter, 5, 1), 1, 4).input, 20u);
  EXPECT_EQ(extent(of(Coll::scatter, 5, 1), 2, 4).input, 0u);
  EXPECT_EQ(extent(of(Coll::bcast, 5, 1), 3, 4).output, 5u);
}

TEST(Contract, InPlaceThereIsNoInput) {
  Problem problem = of(Coll::reduce_scatter_block, 5);
  problem.local.in_place = true;
  EXPECT_EQ(extent(problem, 2, 4).input, 0u);
  EXPECT_EQ(extent(problem, 2, 4).output, 20u);
  const auto mine = contribution(problem, 2, 4);
  ASSERT_EQ(mine.size(), 1u);
  EXPECT_EQ(mine[0].where, (Ref{Space::output, 0, 20}));
  problem = of(Coll::allgather, 5);
  problem.local.in_place = true;
  EXPECT_EQ(contribution(problem, 2, 4)[0].where, (Ref{Space::output, 10, 5}));
}

TEST(Contract, ExscanLeavesRankZeroAlone) {
  const std::vector<Problem> problems(3, of(Coll::exscan, 5));
  EXPECT_TRUE(expectation(problems, 0).empty());
  EXPECT_EQ(extent(problems[0], 0, 3).output, 0u);
  const auto last = expectation(problems, 2);
  EXPECT_EQ(last[0].first, 0);
  EXPECT_EQ(last[0].last, 1);
}

TEST(Contract, AlltoallvTakesFromWhereThePeerPutIt) {
  // Rank 0 sends 2 to itself and 3 to rank 1, which lie at 7 in its buffer.
  const uint64_t send[2][2] = {{2, 3}, {1, 4}}, recv[2][2] = {{2, 1}, {3, 4}};
  const uint64_t displs[2] = {0, 7};
  std::vector<Problem> problems(2, of(Coll::alltoallv, 0));
  for (size_t r = 0; r < 2; ++r) {
    problems[r].local.send_counts = send[r];
    problems[r].local.recv_counts = recv[r];
  }
  problems[0].local.send_displs = displs;
  EXPECT_EQ(extent(problems[0], 0, 2).input, 10u);
  const auto got = expectation(problems, 1);
  EXPECT_EQ(got[0].where, (Ref{Space::output, 0, 3}));
  EXPECT_EQ(got[0].index, 7u);
  EXPECT_EQ(got[1].where, (Ref{Space::output, 3, 4}));
  EXPECT_EQ(got[1].index, 1u);
}

TEST(Contract, BlocksFollowCountsAndDisplacements) {
  const uint64_t counts[3] = {4, 0, 2}, displs[3] = {5, 1, 0};
  Problem problem = of(Coll::allgatherv, 0);
  problem.agreed.counts = counts;
  EXPECT_EQ(output_block(problem, 2).offset, 4u);
  EXPECT_EQ(agreed_total(problem.agreed, 3), 6u);
  problem.local.recv_displs = displs;
  EXPECT_EQ(output_block(problem, 0).offset, 5u);
  EXPECT_EQ(extent(problem, 0, 3).output, 9u);
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(output_blocks(problem, 3)[static_cast<size_t>(r)].offset,
              output_block(problem, r).offset);
    EXPECT_EQ(output_blocks(problem, 3)[static_cast<size_t>(r)].count,
              output_block(problem, r).count);
  }
}

}  // namespace
}  // namespace tutti
