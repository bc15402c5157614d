#include "tune/replay.hpp"

#include <gtest/gtest.h>

#include "../coll/call.hpp"

namespace tutti {
namespace {

constexpr CostModel plain{.name = "plain",
                          .node = {100, 1},
                          .nvlink = {50, 0.5},
                          .fabric = {1000, 2},
                          .reduce_ns_per_byte = 0.25,
                          .copy_ns_per_byte = 0.125,
                          .group = {5000, 0.5}};

// Two ranks swap a vector of 40 bytes and reduce it.
std::vector<Schedule> swap_and_reduce() {
  std::vector<Schedule> all(2);
  for (int r = 0; r < 2; ++r) {
    Schedule& s = all[static_cast<size_t>(r)];
    s.input_count = s.output_count = 10;
    ScheduleBuilder b(s, r, 2);
    const Ref own{Space::input, 0, 10}, theirs = b.scratch(10);
    auto sent = b.send(1 - r, own, {});
    auto got = b.recv(1 - r, theirs, {});
    b.reduce(r == 0 ? own : theirs, r == 0 ? theirs : own, {Space::output, 0, 10}, {sent, got});
  }
  return all;
}

TEST(Replay, AddsLatencyGapAndWork) {
  const auto all = swap_and_reduce();
  EXPECT_DOUBLE_EQ(replay(all, Topology::flat(2), plain, 4)->makespan_ns, 1000 + 80 + 10);
  EXPECT_DOUBLE_EQ(replay(all, *parse_topology("rank:2"), plain, 4)->makespan_ns, 100 + 40 + 10);
  EXPECT_DOUBLE_EQ(replay(all, *parse_topology("gpu:2"), plain, 4)->makespan_ns, 50 + 20 + 10);
  const auto counted = replay(all, Topology::flat(2), plain, 4);
  EXPECT_EQ(counted->messages_far, 2u);
  EXPECT_EQ(counted->bytes_far, 80u);
}

// Ranks 0 and 1 of one node send to 2 and 3 of the other.
TEST(Replay, StreamsShareTheirNodesNics) {
  std::vector<Schedule> all(4);
  for (int r = 0; r < 4; ++r) {
    all[static_cast<size_t>(r)].input_count = all[static_cast<size_t>(r)].output_count = 10;
    ScheduleBuilder b(all[static_cast<size_t>(r)], r, 4);
    if (r < 2)
      b.send(r + 2, {Space::input, 0, 10}, {});
    else
      b.recv(r - 2, {Space::output, 0, 10}, {});
  }
  EXPECT_DOUBLE_EQ(replay(all, *parse_topology("node:2 rank:2 nic:1"), plain, 1)->makespan_ns,
                   1040);
  EXPECT_DOUBLE_EQ(replay(all, *parse_topology("node:2 rank:2 nic:2"), plain, 1)->makespan_ns,
                   1020);
}

TEST(Replay, AGroupStepEndsForAllAtOnce) {
  std::vector<Schedule> all(2);
  for (int r = 0; r < 2; ++r) {
    all[static_cast<size_t>(r)].input_count = all[static_cast<size_t>(r)].output_count = 10;
    ScheduleBuilder b(all[static_cast<size_t>(r)], r, 2);
    auto first = r == 0 ? b.copy({Space::input, 0, 8}, {Space::output, 0, 8}, {}) : b.none;
    b.group(Group{.coll = Coll::allreduce, .members = {0, 1}}, {Space::input, 0, 10},
            {Space::output, 0, 10}, std::vector<uint32_t>{first});
  }
  EXPECT_DOUBLE_EQ(replay(all, *parse_topology("gpu:2"), plain, 1)->makespan_ns, 1 + 5000 + 5);
}

TEST(Replay, SaysWhenStepsNeverEnd) {
  auto all = swap_and_reduce();
  all[1].steps.clear();
  EXPECT_EQ(replay(all, Topology::flat(2), plain, 1).status(), Status(Code::internal));
}

// The closed forms that select goes by, against the replay of the generated steps.
TEST(Replay, EstimatesAreOfItsOrder) {
  int compared = 0;
  for (const Algorithm* algorithm : algorithms())
    for (Coll coll : algorithm->collectives) {
      if (coll == Coll::alltoallv || coll == Coll::alltoallw || coll == Coll::gatherv ||
          coll == Coll::scatterv || coll == Coll::allgatherv || coll == Coll::reduce_scatter)
        continue;  // blocks of many sizes: what is agreed says little of the cost
      for (const char* words : {"node:16 rank:1", "rank:16", "node:4 rank:4"})
        for (uint64_t count : {2, 16 << 10}) {
          const Topology t = *parse_topology(words);
          Call call(coll, t.nranks, count, true, 1);
          const Params params = algorithm->standard_params();
          if (!algorithm->applies(call.agreed(), t, params)) continue;
          const CostModel& model = cost_models()[0];
          const auto all = schedules(*algorithm, call, t, params);
          const auto took = replay(all, t, model, info(call.agreed().dtype).extent);
          ASSERT_TRUE(took.ok());
          const Scale scale(call.agreed(), t);
          const auto said = static_cast<double>(
              cost_ns(algorithm->estimate(call.agreed(), scale, params), scale, model));
          EXPECT_LT(said, 4 * took->makespan_ns)
              << name(coll) << " " << algorithm->scheme << " " << words << " " << count;
          EXPECT_GT(said, took->makespan_ns / 4)
              << name(coll) << " " << algorithm->scheme << " " << words << " " << count;
          ++compared;
        }
    }
  EXPECT_GT(compared, 100);
}

}  // namespace
}  // namespace tutti
