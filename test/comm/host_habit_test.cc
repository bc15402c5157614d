#include "comm/host_habit.hpp"

#include <gtest/gtest.h>

#include <random>

namespace tutti {
namespace {

TEST(HostHabit, LearnsFromHostCallsInARowAndLooksAgain) {
  HostHabit habit;
  for (int i = 0; i < HostHabit::calls_to_learn; ++i) {
    EXPECT_FALSE(habit.goes_below(Coll::bcast, 100));
    habit.note(Coll::bcast, 100, true);
  }
  for (int round = 0; round < 3; ++round) {
    for (int i = 1; i < HostHabit::probe_period; ++i)
      EXPECT_TRUE(habit.goes_below(Coll::bcast, 100)) << i;
    EXPECT_FALSE(habit.goes_below(Coll::bcast, 100)) << "a probe";
    habit.note(Coll::bcast, 100, true);
  }
  EXPECT_FALSE(habit.goes_below(Coll::bcast, 1 << 20)) << "sizes learn apart";
  EXPECT_FALSE(habit.goes_below(Coll::gather, 100)) << "and collectives";
}

TEST(HostHabit, ADeviceBufferForgetsIt) {
  HostHabit habit;
  for (int i = 0; i < 100; ++i) habit.note(Coll::scatter, 64, true);
  EXPECT_TRUE(habit.goes_below(Coll::scatter, 64));
  habit.note(Coll::scatter, 64, false);
  for (int i = 0; i < HostHabit::calls_to_learn; ++i) {
    EXPECT_FALSE(habit.goes_below(Coll::scatter, 64));
    habit.note(Coll::scatter, 64, true);
  }
  EXPECT_TRUE(habit.goes_below(Coll::scatter, 64));
}

TEST(HostHabit, LeavesAloneWhatIsFasterHere) {
  HostHabit habit;
  std::random_device device;
  std::mt19937_64 random(device());
  for (int i = 0; i < 1000; ++i) {
    const uint64_t bytes = random() >> random() % 64;
    for (const Coll coll : {Coll::allreduce, Coll::allgather, Coll::barrier, Coll::alltoall}) {
      habit.note(coll, bytes, true);
      EXPECT_FALSE(habit.goes_below(coll, bytes));
    }
    habit.note(Coll::reduce, HostHabit::largest_reduce_bytes + 1 + bytes / 2, true);
    EXPECT_FALSE(habit.goes_below(Coll::reduce, HostHabit::largest_reduce_bytes + 1 + bytes / 2));
  }
}

// Ranks that see the same calls and gates decide alike.
TEST(HostHabit, IsAFunctionOfWhatAllRanksSee) {
  std::random_device device;
  std::mt19937_64 random(device());
  HostHabit one;
  HostHabit other;
  for (int i = 0; i < 20'000; ++i) {
    const Coll coll = random() % 2 ? Coll::bcast : Coll::gather;
    const uint64_t bytes = uint64_t{1} << random() % 8;
    const bool below = one.goes_below(coll, bytes);
    ASSERT_EQ(below, other.goes_below(coll, bytes));
    if (below) continue;
    const bool all_host = random() % 16 != 0;
    one.note(coll, bytes, all_host);
    other.note(coll, bytes, all_host);
  }
}

}  // namespace
}  // namespace tutti
