#include "sched/schedule.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

using Id = ScheduleBuilder::Id;

TEST(ScheduleBuilder, NumbersStepsAndKeepsAfterListsSortedAndUnique) {
  Schedule s;
  ScheduleBuilder b(s, 1, 3);
  const Ref two{Space::input, 0, 2}, out{Space::output, 0, 2};
  const Id first = b.send(0, two, {}), second = b.recv(2, out, {});
  const Id third = b.copy(two, out, {second, ScheduleBuilder::none, first, second});
  EXPECT_EQ(third, 2u);
  EXPECT_EQ(s.rank, 1);
  EXPECT_EQ(s.nranks, 3);
  const auto after = s.after_of(s.steps[third]);
  EXPECT_EQ(std::vector<uint32_t>(after.begin(), after.end()), (std::vector<uint32_t>{0, 1}));
}

TEST(ScheduleBuilder, DropsEmptyWorkButNotEmptyMessages) {
  Schedule s;
  ScheduleBuilder b(s, 0, 2);
  const Ref nothing{};
  EXPECT_EQ(b.copy(nothing, nothing, {}), ScheduleBuilder::none);
  EXPECT_EQ(b.reduce(nothing, nothing, nothing, {}), ScheduleBuilder::none);
  EXPECT_EQ(b.send(1, nothing, {}), 0u);
  EXPECT_EQ(s.steps.size(), 1u);
}

TEST(ScheduleBuilder, ScratchRangesLieApart) {
  Schedule s;
  ScheduleBuilder b(s, 0, 1);
  const Ref a = b.scratch(3), c = b.scratch(5);
  EXPECT_EQ(a, (Ref{Space::scratch, 0, 3}));
  EXPECT_EQ(c, (Ref{Space::scratch, 3, 5}));
  EXPECT_EQ(s.scratch_count, 8u);
}

TEST(ScheduleBuilder, ChunksOfAGroupShareItsContract) {
  Schedule s;
  ScheduleBuilder b(s, 0, 2);
  Group group{.coll = Coll::allreduce, .members = {0, 1}};
  b.group(group, {}, {}, {}, 0);
  b.group(group, {}, {}, {}, 1);
  group.coll = Coll::allgather;
  b.group(group, {}, {}, {}, 0);
  EXPECT_EQ(s.groups.size(), 2u);
  EXPECT_EQ(s.steps[1].peer, 0);
  EXPECT_EQ(s.steps[2].peer, 1);
}

TEST(Builder, AJoinStandsForAllItWaitsFor) {
  Schedule schedule;
  ScheduleBuilder b(schedule, 0, 1);
  const auto none = ScheduleBuilder::none;
  EXPECT_EQ(b.join({}), none);
  const auto a = b.copy({Space::input, 0, 1}, {Space::output, 0, 1}, {});
  EXPECT_EQ(b.join(std::vector{none, a, a}), a);
  EXPECT_EQ(schedule.steps.size(), 1u);
  const auto c = b.copy({Space::input, 1, 1}, {Space::output, 1, 1}, {});
  const auto both = b.join(std::vector{c, a, none});
  ASSERT_EQ(schedule.steps.size(), 3u);
  const auto after = schedule.after_of(schedule.steps[both]);
  EXPECT_EQ(std::vector<uint32_t>(after.begin(), after.end()), (std::vector<uint32_t>{a, c}));
  EXPECT_EQ(schedule.steps[both].to.count, 0u);
}

}  // namespace
}  // namespace tutti
