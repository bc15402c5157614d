#include "sched/print.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

// Two ranks swap a vector of 4 and reduce it.
std::vector<Schedule> swap_and_reduce() {
  std::vector<Schedule> all(2);
  for (int r = 0; r < 2; ++r) {
    Schedule& s = all[static_cast<size_t>(r)];
    s.input_count = s.output_count = 4;
    ScheduleBuilder b(s, r, 2);
    const Ref own{Space::input, 0, 4}, result{Space::output, 0, 4}, theirs = b.scratch(4);
    auto sent = b.send(1 - r, own, {}, 7);
    auto got = b.recv(1 - r, theirs, {}, 7);
    b.reduce(r == 0 ? own : theirs, r == 0 ? theirs : own, result, {sent, got});
  }
  return all;
}

TEST(Print, TextNamesEveryStepAndWhatItWaitsFor) {
  EXPECT_EQ(print_text(swap_and_reduce()[1]),
            "rank 1 of 2: input 4 output 4 scratch 4 elements, 3 steps\n"
            "0 send input[0, 4) to 0 tag 7\n"
            "1 recv scratch[0, 4) from 0 tag 7\n"
            "2 reduce output[0, 4) = scratch[0, 4) op input[0, 4) after 0 1\n");
}

TEST(Print, DotJoinsMessages) {
  const std::string dot = print_dot(swap_and_reduce());
  EXPECT_NE(dot.find("r0s0 -> r1s1 [style=dashed];"), std::string::npos);
  EXPECT_NE(dot.find("r1s0 -> r0s1 [style=dashed];"), std::string::npos);
  EXPECT_NE(dot.find("r1s1 -> r1s2;"), std::string::npos);
}

TEST(Print, GoalCountsBytesAndTime) {
  Result<std::string> goal = print_goal(swap_and_reduce(), 8, 2.5);
  ASSERT_TRUE(goal.ok());
  EXPECT_NE(goal->find("num_ranks 2\n"), std::string::npos);
  EXPECT_NE(goal->find("rank 0 {\n"
                       "l1: send 32b to 1 tag 7\n"
                       "l2: recv 32b from 1 tag 7\n"
                       "l3: calc 10\n"
                       "l3 requires l1\n"
                       "l3 requires l2\n"
                       "}\n"),
            std::string::npos);
}

TEST(Print, GoalRefusesGroupSteps) {
  std::vector<Schedule> all(1);
  ScheduleBuilder b(all[0], 0, 1);
  b.group(Group{.members = {0}}, {}, {}, {});
  EXPECT_EQ(print_goal(all, 1, 0).status(), Status(Code::unsupported));
}

}  // namespace
}  // namespace tutti
