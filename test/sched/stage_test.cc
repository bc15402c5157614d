// Every algorithm on buffers of which some lie on devices; and schedules that forget it.
#include "sched/stage.hpp"

#include <gtest/gtest.h>

#include "../coll/call.hpp"

namespace tutti {
namespace {

// What the network sees: peers, tags and lengths.
std::vector<std::array<uint64_t, 4>> messages(const Schedule& schedule) {
  std::vector<std::array<uint64_t, 4>> all;
  for (const Step& step : schedule.steps)
    if (step.kind == StepKind::send || step.kind == StepKind::recv)
      all.push_back({static_cast<uint64_t>(step.kind), static_cast<uint64_t>(step.peer), step.tag,
                     step.kind == StepKind::send ? step.from.count : step.to.count});
  return all;
}

TEST(Stage, EveryAlgorithmIsProvenAndSendsTheSame) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(text("seed {}", seed));
  std::mt19937_64 random(seed);
  int proven = 0, caught = 0;
  for (const Algorithm* algorithm : algorithms())
    for (Coll coll : algorithm->collectives)
      for (int nranks : {1, 2, 3, 5, 8, 13})
        for (uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{40}, uint64_t{70000}}) {
          Call call(coll, nranks, count, true, random());
          call.put_on_devices();
          Topology topology = Topology::flat(nranks);
          const int on_a_node = 1 + static_cast<int>(random() % 4);
          for (int r = 0; r < nranks; ++r) topology.ranks.push_back({r / on_a_node, -1});
          Params params = algorithm->standard_params();
          for (size_t i = 0; i < algorithm->parameters.size(); ++i) {
            const Param& param = algorithm->parameters[i];
            if (param.unit == Param::Unit::choice)
              params.values[i] = random() % (param.most + 1);
            else if (param.unit == Param::Unit::bytes && random() % 2 == 0)
              params.values[i] = 1 << 14;
          }
          const bool wide = reduces(coll) && random() % 4 == 0;
          std::vector<Problem> problems = call.problems();
          for (Problem& problem : problems) {
            if (wide) problem.agreed.dtype = Dtype::bf16;
            problem.agreed.wide = wide;
          }
          if (!algorithm->applies(problems[0].agreed, topology, params)) continue;
          const std::vector<Schedule> staged = schedules(*algorithm, problems, topology, params);
          const Verdict verdict = verify(problems, staged);
          ASSERT_TRUE(verdict.proven)
              << algorithm->scheme << " " << call.describe() << ": " << verdict.text;
          ++proven;
          std::vector<Problem> on_hosts = problems;
          for (Problem& problem : on_hosts)
            problem.local.send_on_device = problem.local.recv_on_device = false;
          const std::vector<Schedule> plain = schedules(*algorithm, on_hosts, topology, params);
          for (size_t r = 0; r < plain.size(); ++r)
            ASSERT_EQ(messages(staged[r]), messages(plain[r])) << call.describe();
          // What was not staged is caught, unless no message touches what is on a device.
          const Verdict forgotten = verify(problems, plain);
          if (forgotten.proven) continue;
          EXPECT_EQ(forgotten.rule, Rule::placement) << forgotten.text;
          ++caught;
        }
  EXPECT_GT(proven, 500);
  EXPECT_GT(caught, 200);
}

Schedule of_rank(const Algorithm& algorithm, const Problem& problem, const Topology& topology,
                 const Params& params) {
  Schedule schedule;
  EXPECT_TRUE(generate(algorithm, problem, Place{0, topology, params}, schedule).ok());
  return schedule;
}

// Two nodes of two: a chunk is reduced from device memory into scratch, and gathered from there.
TEST(Stage, GroupStepsTakeWhatLiesOnTheDeviceWhereItLies) {
  const Algorithm& levels = *find_algorithm(Coll::allreduce, "hierarchical");
  Topology topology = Topology::flat(4);
  for (int r = 0; r < 4; ++r) topology.ranks.push_back({r / 2, -1});
  Problem problem;
  problem.agreed.dtype = Dtype::f32;
  problem.agreed.count = 4 << 20;
  problem.local.send_on_device = problem.local.recv_on_device = true;
  Params params = levels.standard_params();
  for (size_t i = 0; i < levels.parameters.size(); ++i)
    if (std::string_view(levels.parameters[i].name) == "inner") params.values[i] = 1;
  for (bool in_place : {false, true}) {
    problem.local.in_place = in_place;
    const Schedule s = of_rank(levels, problem, topology, params);
    int down = 0, up = 0, copies = 0;
    for (const Step& step : s.steps) {
      copies += step.kind == StepKind::copy && step.to.count != 0 ? 1 : 0;
      if (step.kind != StepKind::group) continue;
      const bool reduces = s.groups[static_cast<size_t>(step.peer)].coll == Coll::reduce_scatter;
      ++(reduces ? down : up);
      EXPECT_EQ(step.from.space, !reduces   ? Space::scratch
                                 : in_place ? Space::output
                                            : Space::input);
      EXPECT_EQ(step.to.space, reduces ? Space::scratch : Space::output);
    }
    EXPECT_EQ(down, 16);
    EXPECT_EQ(up, 16);
    EXPECT_EQ(copies, 0);
    // Its own half, and what the top keeps for two chunks.
    EXPECT_LE(s.scratch_count, (uint64_t{2} << 20) + (2 << 18));
  }
}

// A ring's first sends wait for their own pieces alone.
TEST(Stage, CopiesAreAsSmallAsTheStepsThatNeedThem) {
  const Algorithm& ring = *find_algorithm(Coll::allreduce, "ring");
  Problem problem;
  problem.agreed.dtype = Dtype::f32;
  problem.agreed.count = 1 << 20;
  problem.local.send_on_device = problem.local.recv_on_device = true;
  const Schedule s = of_rank(ring, problem, Topology::flat(4), ring.standard_params());
  uint64_t in = 0, out = 0, longest = 0;
  for (const Step& step : s.steps) {
    if (step.kind != StepKind::copy || step.to.count == 0) continue;
    longest = std::max(longest, step.to.count);
    if (step.from.space == Space::input) in += step.from.count;
    if (step.to.space == Space::output) out += step.to.count;
  }
  EXPECT_EQ(in, problem.agreed.count);
  EXPECT_EQ(out, problem.agreed.count);
  EXPECT_LE(longest, problem.agreed.count / 4);
}

}  // namespace
}  // namespace tutti
