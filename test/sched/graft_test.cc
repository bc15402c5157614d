#include "sched/graft.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

using Id = ScheduleBuilder::Id;

TEST(Graft, MovesRanksRangesTagsAndOrder) {
  Schedule part;
  part.input_count = part.output_count = 4;
  ScheduleBuilder p(part, 0, 2);
  const Ref land = p.scratch(4);
  const Id sent = p.send(1, {Space::input, 0, 4}, {}, 3);
  const Id got = p.recv(1, land, {}, 3);
  p.reduce({Space::input, 0, 4}, land, {Space::output, 0, 4}, {sent, got});

  Schedule whole;
  ScheduleBuilder b(whole, 5, 9);
  const Id before = b.copy({Space::input, 0, 1}, {Space::output, 90, 1}, {});
  const std::vector<int32_t> team = {5, 7};
  const std::vector<Id> after = {before};
  std::vector<Id> ends;
  graft(b, part,
        {.team = team,
         .input = {Space::output, 10, 4},
         .output = {Space::output, 20, 4},
         .scratch = {Space::scratch, 30, 4},
         .tag = 100,
         .after = after},
        ends);
  ASSERT_EQ(whole.steps.size(), 4u);
  EXPECT_EQ(whole.steps[1].peer, 7);
  EXPECT_EQ(whole.steps[1].tag, 103u);
  EXPECT_EQ(whole.steps[1].from, (Ref{Space::output, 10, 4}));
  EXPECT_EQ(whole.steps[2].to, (Ref{Space::scratch, 30, 4}));
  EXPECT_EQ(whole.steps[3].with, (Ref{Space::scratch, 30, 4}));
  EXPECT_EQ(whole.steps[3].to, (Ref{Space::output, 20, 4}));
  EXPECT_EQ(whole.after_of(whole.steps[1])[0], before);
  EXPECT_EQ(whole.after_of(whole.steps[3]).size(), 2u);
  EXPECT_EQ(ends, std::vector<Id>{3});
}

TEST(Graft, AnEmptyPartEndsWhereItBegins) {
  Schedule part, whole;
  ScheduleBuilder b(whole, 0, 1);
  const std::vector<int32_t> team = {0};
  const std::vector<Id> after = {4, 2};
  std::vector<Id> ends = {9};
  graft(b, part, {.team = team, .input = {}, .output = {}, .scratch = {}, .after = after}, ends);
  EXPECT_EQ(ends, after);
}

}  // namespace
}  // namespace tutti
