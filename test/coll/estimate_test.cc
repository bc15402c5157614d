#include "coll/estimate.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

Scale scale_of(std::string_view words, Coll coll = Coll::allreduce, uint64_t bytes = 1024) {
  Agreed agreed;
  agreed.coll = coll;
  agreed.dtype = Dtype::u8;
  agreed.count = bytes;
  return Scale(agreed, *parse_topology(words));
}

TEST(Estimate, ScaleReadsTheShape) {
  const Scale s = scale_of("node:4 gpu:8 nic:4");
  EXPECT_EQ(s.ranks, 32);
  EXPECT_EQ(s.near, 8);
  EXPECT_EQ(s.far, 4);
  EXPECT_EQ(s.nics, 4);
  EXPECT_EQ(s.log_near, 3);
  EXPECT_EQ(s.log_far, 2);
  EXPECT_TRUE(s.devices);
  EXPECT_FALSE(s.folds);
  EXPECT_EQ(s.bytes, 1024);
  EXPECT_TRUE(scale_of("node:3 rank:2,3,1").folds);
  EXPECT_EQ(scale_of("node:3 rank:2,3,1").near, 3);
  EXPECT_FALSE(scale_of("node:3 rank:2").devices);
}

TEST(Estimate, BytesAreOfAllBlocks) {
  EXPECT_EQ(scale_of("rank:4", Coll::allgather, 10).bytes, 40);
  EXPECT_EQ(scale_of("rank:4", Coll::reduce_scatter_block, 10).bytes, 40);
  EXPECT_EQ(scale_of("rank:4", Coll::bcast, 10).bytes, 10);
}

TEST(Estimate, TheNearestLevelHoldsEveryUnitTogether) {
  EXPECT_EQ(scale_of("node:2 gpu:4").inside, Level::nvlink);
  EXPECT_EQ(scale_of("node:2 gpu:4 nvlink:2").inside, Level::node);
  EXPECT_EQ(scale_of("node:2 gpu:1 rank:3").inside, Level::shared_gpu);
  EXPECT_EQ(scale_of("node:2 rank:3").inside, Level::node);
  EXPECT_EQ(scale_of("node:2 gpu:4,0 rank:4").inside, Level::node);
  // A domain over all nodes leaves nothing to the fabric.
  EXPECT_EQ(scale_of("node:2 gpu:4 nvlink:8").far, 1);
  EXPECT_EQ(scale_of("node:2 gpu:4 nvlink:8").near, 8);
}

TEST(Estimate, GroupStepsPassOnAllButTheOwnPart) {
  EXPECT_EQ(group_bytes(Coll::reduce_scatter, Level::node, 4, 100), 75);
  EXPECT_EQ(group_bytes(Coll::allgather, Level::node, 4, 100), 75);
  EXPECT_EQ(group_bytes(Coll::allreduce, Level::node, 4, 100), 150);
  EXPECT_EQ(group_bytes(Coll::barrier, Level::node, 4, 100), 0);
  EXPECT_EQ(group_bytes(Coll::bcast, Level::node, 1, 100), 0);
  EXPECT_EQ(group_bytes(Coll::allreduce, Level::fabric, 4, 100), 100);
}

TEST(Estimate, MessagesPartBetweenInsideAndOutside) {
  const Scale s = scale_of("node:4 rank:4");
  Estimate ring, tree, pairs;
  s.ring(ring, 15, 100);
  EXPECT_DOUBLE_EQ(ring.far.messages + ring.near.messages, 15);
  EXPECT_DOUBLE_EQ(ring.far.messages, 15 * 4.0 / 16);
  EXPECT_EQ(ring.far.bytes, 100);
  EXPECT_EQ(ring.near.bytes, 100);
  s.tree(tree, 4, 100);
  EXPECT_DOUBLE_EQ(tree.near.messages, 2);
  s.pairs(pairs, 0.5, 100, 4);
  EXPECT_EQ(pairs.far.messages, 1);
  EXPECT_EQ(pairs.near.messages, 1);
  EXPECT_EQ(pairs.far.streams, 4);
  EXPECT_EQ(pairs.near.sends, 3);
  EXPECT_EQ(pairs.far.recvs, 12);
  s.handle(tree, 8, 0);
  EXPECT_DOUBLE_EQ(tree.near.sends, 4);
  EXPECT_DOUBLE_EQ(tree.far.sends, 4);
  EXPECT_TRUE(tree.in_turn && ring.in_turn);
  EXPECT_FALSE(pairs.in_turn);
  Estimate alone;
  scale_of("rank:4").ring(alone, 3, 100);
  EXPECT_EQ(alone.near.messages, 3);
  EXPECT_EQ(alone.far.messages, 0);
}

TEST(Estimate, ShortDistancesCrossTheEndsOfNodes) {
  EXPECT_EQ(scale_of("rank:8").crossings(), 0);
  EXPECT_EQ(scale_of("node:2 rank:8").crossings(), (1 + 2 + 4) / 8.0);
  EXPECT_EQ(scale_of("node:2 gpu:8 nic:8").crossings(), 3);
}

TEST(Estimate, BetweenIsTheCallAmongOwners) {
  const Scale s = scale_of("node:6 gpu:8 nic:8").between(6, 0.125);
  EXPECT_EQ(s.ranks, 6);
  EXPECT_EQ(s.near, 1);
  EXPECT_EQ(s.far, 6);
  EXPECT_EQ(s.bytes, 128);
  EXPECT_TRUE(s.folds);
}

}  // namespace
}  // namespace tutti
