#include "shm/board.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace tutti::shm {
namespace {

TEST(SlotPool, GivesEveryCommunicatorItsOwnSlotUntilNoneIsLeft) {
  auto pool = SlotPool::create(1 << 20);
  ASSERT_TRUE(pool.ok());
  std::set<uint64_t> offsets;
  uint32_t with_lane = 0;
  for (uint32_t i = 0; i < SlotPool::slot_count; ++i) {
    auto grant = (*pool)->take(2);
    ASSERT_TRUE(grant.ok());
    EXPECT_TRUE(offsets.insert(grant->slot_offset).second);
    with_lane += grant->lane.offset != 0;
  }
  EXPECT_EQ(with_lane, SlotPool::lane_count);
  EXPECT_EQ((*pool)->take(2).status(), Status(Code::no_resource));
}

TEST(SlotPool, TakesASlotBackOnlyAfterEveryMemberReleasedIt) {
  auto pool = SlotPool::create(0);
  ASSERT_TRUE(pool.ok());
  std::vector<SlotPool::Grant> grants;
  for (uint32_t i = 0; i < SlotPool::slot_count; ++i) grants.push_back(*(*pool)->take(2));
  (*pool)->give_back(grants[7], 2);
  EXPECT_FALSE((*pool)->take(2).ok());
  auto* slot = reinterpret_cast<Slot*>((*pool)->segment()->at(grants[7].slot_offset));
  slot->header[0].sequence.store(12);
  slot->released.fetch_add(1);  // the peer
  auto again = (*pool)->take(2);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->slot_offset, grants[7].slot_offset);
  EXPECT_EQ(slot->header[0].sequence.load(), 0u) << "a recycled slot starts afresh";
}

TEST(SlotPool, LargeLanesAreHandedOnToo) {
  auto pool = SlotPool::create(65536);
  ASSERT_TRUE(pool.ok());
  for (int round = 0; round < 100; ++round) {
    auto grant = (*pool)->take(1);
    ASSERT_TRUE(grant.ok());
    EXPECT_NE(grant->lane.offset, 0u);
    (*pool)->give_back(*grant, 1);
  }
}

}  // namespace
}  // namespace tutti::shm
