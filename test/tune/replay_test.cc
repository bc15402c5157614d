#include "tune/replay.hpp"

#include <gtest/gtest.h>

#include "../coll/call.hpp"
#include "tune/rules.hpp"
#include "tune/select.hpp"

namespace tutti {
namespace {

constexpr CostModel plain{.name = "plain",
                          .node = {100, 1},
                          .nvlink = {50, 0.5},
                          .fabric = {1000, 2},
                          .host = {0.25, 0.125},
                          .device = {0.125, 0.0625},
                          .shared_gpu_group = {3000, 0.25},
                          .nvlink_group = {4000, 0.5},
                          .node_group = {5000, 1},
                          .switch_group = {6000, 2}};

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
  EXPECT_DOUBLE_EQ(replay(all, *parse_topology("gpu:2"), plain, 4)->makespan_ns, 50 + 20 + 5);
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

// Rank 0 sends to all others: its core begins one message after the other, theirs end one each.
TEST(Replay, ACoreHasToDoWithOneMessageAfterTheOther) {
  CostModel busy = plain;
  busy.fabric.send_ns = 300;
  busy.fabric.recv_ns = 200;
  std::vector<Schedule> all(5);
  for (int r = 0; r < 5; ++r) {
    all[static_cast<size_t>(r)].input_count = all[static_cast<size_t>(r)].output_count = 1;
    ScheduleBuilder b(all[static_cast<size_t>(r)], r, 5);
    for (int peer = 1; peer < 5 && r == 0; ++peer) b.send(peer, {Space::input, 0, 1}, {});
    if (r > 0) b.recv(0, {Space::output, 0, 1}, {});
  }
  // The last leaves after four beginnings.
  EXPECT_DOUBLE_EQ(replay(all, Topology::flat(5), busy, 1)->makespan_ns, 4 * 300 + 2 + 500 + 200);
  // To rank 0 from all: it ends one after the other.
  for (int r = 0; r < 5; ++r)
    for (Step& step : all[static_cast<size_t>(r)].steps) {
      step.kind = r == 0 ? StepKind::recv : StepKind::send;
      std::swap(step.from, step.to);
      step.from.space = Space::input;
      step.to.space = Space::output;
    }
  EXPECT_DOUBLE_EQ(replay(all, Topology::flat(5), busy, 1)->makespan_ns, 300 + 2 + 500 + 4 * 200);
}

TEST(Replay, WordWithoutBytesNeedsNoGpu) {
  std::vector<Schedule> all(2);
  for (int r = 0; r < 2; ++r) {
    ScheduleBuilder b(all[static_cast<size_t>(r)], r, 2);
    if (r == 0)
      b.send(1, {}, {});
    else
      b.recv(0, {}, {});
  }
  EXPECT_DOUBLE_EQ(replay(all, *parse_topology("gpu:2"), plain, 1)->makespan_ns, 100);
}

TEST(Replay, AGroupStepEndsForAllAtOnce) {
  std::vector<Schedule> all(2);
  for (int r = 0; r < 2; ++r) {
    all[static_cast<size_t>(r)].input_count = all[static_cast<size_t>(r)].output_count = 10;
    ScheduleBuilder b(all[static_cast<size_t>(r)], r, 2);
    auto first = r == 0 ? b.copy({Space::input, 0, 8}, {Space::output, 0, 8}, {}) : b.none;
    b.group(Group{.coll = Coll::allreduce, .level = Level::nvlink, .members = {0, 1}},
            {Space::input, 0, 10}, {Space::output, 0, 10}, std::vector<uint32_t>{first});
  }
  // Half of the vector passes on twice.
  EXPECT_DOUBLE_EQ(replay(all, *parse_topology("gpu:2"), plain, 1)->makespan_ns, 0.5 + 4000 + 5);
  for (Schedule& s : all) s.groups[0].level = Level::node;
  EXPECT_DOUBLE_EQ(replay(all, *parse_topology("rank:2"), plain, 1)->makespan_ns, 1 + 5000 + 10);
}

TEST(Replay, SaysWhenStepsNeverEnd) {
  auto all = swap_and_reduce();
  all[1].steps.clear();
  EXPECT_EQ(replay(all, Topology::flat(2), plain, 1).status(), Status(Code::internal));
}

// The closed forms that select goes by, against the replay of the generated steps: within a factor
// of each other that is 3 for compositions over levels and 4 for flat algorithms, whose messages
// inside and between nodes get into each other's way; for every algorithm and setting that select may
// choose, on hosts and GPUs, one and many ranks a node. Counts of blocks are equal here; of uneven ones the forms know the
// sum only.
TEST(Replay, EstimatesAgreeWithIt) {
  int compared = 0;
  double worst = 1;
  const CostModel& model = cost_models()[0];
  for (const Algorithm* algorithm : algorithms())
    for (Coll coll : algorithm->collectives) {
      if (coll == Coll::alltoallv || coll == Coll::alltoallw || coll == Coll::gatherv ||
          coll == Coll::scatterv || coll == Coll::allgatherv || coll == Coll::reduce_scatter)
        continue;
      for (const char* words :
           {"node:16", "rank:16", "node:4 rank:4", "node:4 gpu:4 nic:4", "gpu:8", "node:3 rank:5",
            "node:4 gpu:4 nic:4 sharp:2", "node:2 gpu:8 nic:4"})
        for (uint64_t count : {2, 512, 16 << 10, 1 << 20}) {
          const Topology t = *parse_topology(words);
          Problem problem;
          problem.agreed.coll = coll;
          problem.agreed.count = coll == Coll::barrier ? 0 : count;
          problem.agreed.dtype = reduces(coll) ? Dtype::f32 : Dtype::byte;
          const double tolerance = std::string_view(algorithm->scheme) == "hierarchical" ? 3 : 4;
          const std::vector<Problem> calls(static_cast<size_t>(t.nranks), problem);
          for (const Params& params : worthwhile(*algorithm, true, true)) {
            if (!algorithm->applies(problem.agreed, t, params)) continue;
            std::vector<Schedule> all(calls.size());
            for (int r = 0; r < t.nranks; ++r)
              ASSERT_TRUE(
                  generate(*algorithm, problem, Place{r, t, params}, all[static_cast<size_t>(r)])
                      .ok());
            const auto took = replay(all, t, model, info(problem.agreed.dtype).extent);
            ASSERT_TRUE(took.ok());
            const Scale scale(problem.agreed, t);
            const auto said = static_cast<double>(
                cost_ns(algorithm->estimate(problem.agreed, scale, params), scale, model));
            const double ratio = said / took->makespan_ns;
            EXPECT_LT(ratio, tolerance)
                << name(coll) << " " << algorithm->scheme << " " << describe(*algorithm, params)
                << " " << words << " " << count;
            EXPECT_GT(ratio, 1 / tolerance)
                << name(coll) << " " << algorithm->scheme << " " << describe(*algorithm, params)
                << " " << words << " " << count;
            worst = std::max({worst, ratio, 1 / ratio});
            ++compared;
          }
        }
    }
  EXPECT_GT(compared, 1000);
  printf("%d compared, worst factor %.2f\n", compared, worst);
}

}  // namespace
}  // namespace tutti
