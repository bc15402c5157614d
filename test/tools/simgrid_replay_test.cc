// The generated schedules in SimGrid: never under what links and latencies allow, near the cost model's
// replay, and of one mind with its forecasts on which of two algorithms is faster where these are far apart.
#include "simgrid_replay.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "coll/registry.hpp"
#include "tune/replay.hpp"
#include "tune/rules.hpp"
#include "tune/select.hpp"

namespace tutti {
namespace {

const CostModel& model() {
  return cost_models()[0];
}

Problem call(Coll coll, uint64_t bytes) {
  Problem problem;
  problem.agreed.coll = coll;
  problem.agreed.dtype = reduces(coll) ? Dtype::f32 : Dtype::byte;
  problem.agreed.count = coll == Coll::barrier ? 0 : bytes / info(problem.agreed.dtype).extent;
  return problem;
}

std::vector<Schedule> schedules(const Choice& choice, const Problem& problem,
                                const Topology& topology) {
  std::vector<Schedule> all(static_cast<size_t>(topology.nranks));
  for (int r = 0; r < topology.nranks; ++r)
    EXPECT_TRUE(generate(*choice.algorithm, problem, Place{r, topology, choice.params},
                         all[static_cast<size_t>(r)])
                    .ok());
  return all;
}

// What no machine of this model can beat: bytes that leave a node over all of its NICs at once, and one
// message where any leaves.
double bound_ns(const std::vector<Schedule>& all, const Topology& topology,
                uint64_t element_bytes) {
  std::map<int, double> leaving;
  bool any = false;
  for (const Schedule& s : all)
    for (const Step& step : s.steps)
      if (step.kind == StepKind::send && topology.distance(s.rank, step.peer) == Distance::fabric) {
        any = true;
        leaving[topology.node_of(s.rank)] += static_cast<double>(step.from.count * element_bytes);
      }
  double most = 0;
  for (const auto& [node, bytes] : leaving) {
    std::vector<int32_t> here;
    for (int r = 0; r < topology.nranks; ++r)
      if (topology.node_of(r) == node) here.push_back(r);
    most = std::max(most, bytes * model().fabric.ns_per_byte / topology.nics_of(here));
  }
  return most + (any ? model().fabric.latency_ns : 0);
}

// Longest way through the steps, were every link and core free at all times.
double longest_way_ns(const std::vector<Schedule>& all, const Topology& topology,
                      uint64_t element_bytes) {
  CostModel free = model();
  for (LinkCost* link : {&free.node, &free.nvlink, &free.fabric})
    // A sender need not wait for what the receiver's core does.
    *link = {.latency_ns = link->latency_ns - link->recv_ns};
  free.host = free.device = {};
  return replay(all, topology, free, element_bytes)->makespan_ns;
}

// A message by hand: 1000 bytes to the other node, and back.
TEST(Simgrid, AddsLatencyGapAndWorkAsTheReplayDoes) {
  std::vector<Schedule> all(2);
  for (int r = 0; r < 2; ++r) {
    Schedule& s = all[static_cast<size_t>(r)];
    s.input_count = s.output_count = 1000;
    ScheduleBuilder b(s, r, 2);
    if (r == 0) {
      auto sent = b.send(1, {Space::input, 0, 1000}, {}, 1);
      b.recv(1, {Space::output, 0, 1000}, {sent}, 2);
    } else {
      auto got = b.recv(0, {Space::output, 0, 1000}, {}, 1);
      b.send(0, {Space::output, 0, 1000}, {got}, 2);
    }
  }
  const Result<double> took = simgrid_makespan_ns(all, Topology::flat(2), model(), 1);
  ASSERT_TRUE(took.ok());
  const double one = model().fabric.latency_ns + 1000 * model().fabric.ns_per_byte;
  EXPECT_NEAR(*took, 2 * one, 1);
}

TEST(Simgrid, SaysWhenStepsNeverEnd) {
  const Topology two = Topology::flat(2);
  const Choice choice{find_algorithm(Coll::allreduce, "ring"),
                      find_algorithm(Coll::allreduce, "ring")->standard_params()};
  auto all = schedules(choice, call(Coll::allreduce, 4096), two);
  all[1].steps.clear();
  all[1].after.clear();
  EXPECT_FALSE(simgrid_makespan_ns(all, two, model(), 4).ok());
}

struct Case {
  Coll coll;
  const char* topology;
  uint64_t bytes;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* words : {"node:8", "node:4 rank:4", "node:4 gpu:4 nic:4", "node:2 gpu:8 nic:2"})
    for (Coll coll : {Coll::allreduce, Coll::bcast, Coll::allgather, Coll::reduce_scatter_block,
                      Coll::alltoall, Coll::gather, Coll::barrier})
      for (uint64_t bytes : {uint64_t{64}, uint64_t{1} << 20}) {
        const bool blocks = coll == Coll::allgather || coll == Coll::reduce_scatter_block ||
                            coll == Coll::alltoall || coll == Coll::gather;
        if (coll == Coll::barrier && bytes > 64) continue;
        all.push_back({coll, words, blocks ? bytes / 16 : bytes});
      }
  return all;
}

TEST(Simgrid, TimesKeepTheBoundsAndTheRankingOfClearForecasts) {
  int timed = 0, pairs = 0, differ = 0;
  double worst = 1;
  for (const Case& one : cases()) {
    const Topology t = *parse_topology(one.topology);
    const Problem problem = call(one.coll, one.bytes);
    const uint64_t element_bytes = info(problem.agreed.dtype).extent;
    struct Timed {
      std::string name;
      double forecast_ns, simgrid_ns;
    };
    std::vector<Timed> all;
    for (const Candidate& candidate : explain(problem.agreed, t, {.groups = true}).candidates) {
      if (!candidate.applies) continue;
      // Of compositions the plain ones: the others differ in chunks.
      const Algorithm& algorithm = *candidate.choice.algorithm;
      Params plain = algorithm.standard_params();
      for (size_t i = 0; i < algorithm.parameters.size(); ++i)
        if (algorithm.parameters[i].unit == Param::Unit::choice)
          plain.values[i] = candidate.choice.params[i];
      if (plain != candidate.choice.params) continue;
      const auto steps = schedules(candidate.choice, problem, t);
      const Result<double> took = simgrid_makespan_ns(steps, t, model(), element_bytes);
      ASSERT_TRUE(took.ok()) << algorithm.scheme;
      const auto replayed = replay(steps, t, model(), element_bytes);
      const std::string what = text("{} {} {} on {}, {} bytes", name(one.coll), algorithm.scheme,
                                    describe(algorithm, plain), one.topology, one.bytes);
      EXPECT_GE(*took * 1.001, bound_ns(steps, t, element_bytes)) << what;
      EXPECT_GE(*took * 1.001, longest_way_ns(steps, t, element_bytes)) << what;
      const double factor = std::max(*took / replayed->makespan_ns, replayed->makespan_ns / *took);
      // In the replay a message that waits for its receiver's link holds the sender's, too; here it
      // shares both. Of a tree with several children that makes a factor of 2.3.
      EXPECT_LT(factor, 2.5) << what << ": " << *took << " ns, replay " << replayed->makespan_ns;
      worst = std::max(worst, factor);
      all.push_back({what, static_cast<double>(candidate.cost_ns), *took});
      ++timed;
    }
    constexpr double clear_gap = 3;
    for (const Timed& fast : all)
      for (const Timed& slow : all) {
        if (fast.forecast_ns * clear_gap > slow.forecast_ns) continue;
        ++pairs;
        if (fast.simgrid_ns <= slow.simgrid_ns) continue;
        ++differ;
        ADD_FAILURE() << fast.name << " was to be far faster than " << slow.name << ": forecasts "
                      << fast.forecast_ns << " and " << slow.forecast_ns << " ns, SimGrid "
                      << fast.simgrid_ns << " and " << slow.simgrid_ns;
      }
  }
  EXPECT_GT(timed, 100);
  EXPECT_GT(pairs, 100);
  printf("%d timed, worst factor to the replay %.2f; %d pairs with a clear gap, %d differ\n", timed,
         worst, pairs, differ);
}

}  // namespace
}  // namespace tutti
