#include "coll/cache.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "../engine/allocations.hpp"
#include "call.hpp"
#include "tune/select.hpp"

namespace tutti {
namespace {

Problem allreduce(uint64_t count) {
  Problem problem;
  problem.agreed.coll = Coll::allreduce;
  problem.agreed.dtype = Dtype::f32;
  problem.agreed.count = count;
  return problem;
}

class Cache : public testing::Test {
 protected:
  std::shared_ptr<const Schedule> get(ScheduleCache& cache, const Problem& problem) {
    auto got = cache.get(ring, problem, Place{1, topology, params});
    EXPECT_TRUE(got.ok());
    return got.ok() ? *got : nullptr;
  }
  const Algorithm& ring = *find_algorithm(Coll::allreduce, "ring");
  const Topology topology = Topology::flat(4);
  const Params params = ring.standard_params();
};

TEST_F(Cache, SameCallSameSchedule) {
  ScheduleCache cache(1 << 20);
  auto first = get(cache, allreduce(100));
  EXPECT_EQ(get(cache, allreduce(100)), first);
  EXPECT_EQ(cache.hits(), 1u);
  EXPECT_EQ(cache.misses(), 1u);
  Schedule fresh;
  ASSERT_TRUE(generate(ring, allreduce(100), Place{1, topology, params}, fresh).ok());
  ASSERT_EQ(fresh.steps.size(), first->steps.size());
}

TEST_F(Cache, EveryFactThatMattersIsInTheSignature) {
  ScheduleCache cache(1 << 24);
  const uint64_t lists[2][4] = {{1, 2, 3, 4}, {4, 3, 2, 1}};
  std::vector<std::function<void(Problem&)>> changes = {
      [](Problem&) {},
      [](Problem& p) { p.agreed.count = 101; },
      [](Problem& p) { p.agreed.dtype = Dtype::f64; },
      [](Problem& p) { p.agreed.root = 2; },
      [](Problem& p) { p.agreed.wide = true; },
      [](Problem& p) { p.local.in_place = true; },
      [](Problem& p) { p.local.count = 7; },
      [&](Problem& p) { p.agreed.counts = lists[0]; },
      [&](Problem& p) { p.agreed.counts = lists[1]; },
      [&](Problem& p) { p.local.send_displs = lists[0]; },
      [&](Problem& p) { p.local.recv_displs = lists[0]; },
      [&](Problem& p) { p.local.send_counts = lists[0]; },
      [&](Problem& p) { p.local.recv_counts = lists[0]; },
      [](Problem& p) {
        p.agreed.op = Op::user;
        p.agreed.commutative = false;
      },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    Problem problem = allreduce(100);
    changes[i](problem);
    get(cache, problem);
    EXPECT_EQ(cache.misses(), i + 1) << "change " << i;
  }
  EXPECT_EQ(cache.hits(), 0u);
}

TEST_F(Cache, AnOperationThatChangesNothingHits) {
  ScheduleCache cache(1 << 20);
  Problem sum = allreduce(9), least = allreduce(9);
  least.agreed.op = Op::min;
  EXPECT_EQ(get(cache, sum), get(cache, least));
}

TEST_F(Cache, StaysBoundedAndDropsTheOldest) {
  ScheduleCache probe(1 << 20);
  get(probe, allreduce(1000));
  ScheduleCache cache(probe.bytes() * 3 + 100);
  auto kept = get(cache, allreduce(1000));
  for (uint64_t n = 1001; n < 1100; ++n) {
    get(cache, allreduce(n));
    get(cache, allreduce(1000));  // stays the latest
    EXPECT_LE(cache.bytes(), probe.bytes() * 3 + 100);
  }
  EXPECT_EQ(cache.size(), 3u);
  EXPECT_EQ(get(cache, allreduce(1000)), kept);
  const uint64_t before = cache.misses();
  get(cache, allreduce(1001));
  EXPECT_EQ(cache.misses(), before + 1);
}

TEST_F(Cache, TooLargeIsMadeAndNotKept) {
  ScheduleCache cache(10);
  EXPECT_NE(get(cache, allreduce(1000)), nullptr);
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_EQ(cache.bytes(), 0u);
}

// A call of 4,096 ranks, 512 nodes of 8 GPUs: a vector of 64 MiB or blocks of 1,000 elements.
class Scaling : public testing::TestWithParam<const Algorithm*> {
 protected:
  static constexpr int nranks = 4096;

  Problem problem(Coll coll, int rank) const {
    Problem problem;
    problem.agreed.coll = coll;
    problem.agreed.dtype = reduces(coll) ? Dtype::f32 : Dtype::byte;
    const bool vector = coll == Coll::allreduce || coll == Coll::reduce || coll == Coll::bcast ||
                        coll == Coll::scan || coll == Coll::exscan;
    problem.agreed.count = coll == Coll::barrier ? 0 : vector ? 16 << 20 : 1000;
    if (coll == Coll::allgatherv || coll == Coll::reduce_scatter) problem.agreed.counts = blocks;
    if (coll == Coll::alltoallv || coll == Coll::alltoallw)
      problem.local.send_counts = problem.local.recv_counts = blocks;
    problem.local.count = 1000;
    if (rank == 0 && coll == Coll::gatherv) problem.local.recv_counts = blocks;
    if (rank == 0 && coll == Coll::scatterv) problem.local.send_counts = blocks;
    return problem;
  }

  const Topology topology = *parse_topology("node:512 gpu:8 nic:8 sharp:2");
  const std::vector<uint64_t> blocks = std::vector<uint64_t>(nranks, 1000);
};

// What a rank's schedule and its making take, counted, with every setting that select may choose: memory
// held and at most at once, both under 16 MiB, and steps, edges and allocations, on which the time depends.
// Of that bench/instructions tells more.
TEST_P(Scaling, GeneratesFourThousandRanksInBoundedMemory) {
  constexpr uint64_t limit_bytes = uint64_t{16} << 20;
  const Algorithm& algorithm = *GetParam();
  for (Coll coll : algorithm.collectives) {
    uint64_t steps = 0, edges = 0, allocations = 0, held_bytes = 0, peak_bytes = 0;
    for (const Params& params : worthwhile(algorithm, true, true)) {
      if (!algorithm.applies(problem(coll, 0).agreed, topology, params)) continue;
      for (int rank : {0, 1, 2047, 4095}) {
        const Problem call = problem(coll, rank);
        const uint64_t before = allocations_of_this_thread();
        restart_peak_of_this_thread();
        Schedule schedule;
        ASSERT_TRUE(generate(algorithm, call, Place{rank, topology, params}, schedule).ok());
        peak_bytes = std::max(peak_bytes, peak_bytes_of_this_thread());
        allocations = std::max(allocations, allocations_of_this_thread() - before);
        steps = std::max<uint64_t>(steps, schedule.steps.size());
        edges = std::max<uint64_t>(edges, schedule.after.size());
        held_bytes = std::max<uint64_t>(held_bytes, bytes_of(schedule));
      }
    }
    EXPECT_LT(held_bytes, limit_bytes) << name(coll);
    EXPECT_LT(peak_bytes, limit_bytes) << name(coll);
    // No more than a few dozen for each rank, whatever the algorithm.
    EXPECT_LT(steps + edges, 64u * nranks) << name(coll);
    EXPECT_LT(allocations, 32u * nranks) << name(coll);
    printf(
        "%s %s, at most of a rank of %d: %llu steps, %llu edges, %llu KiB held, %llu KiB at once, "
        "%llu allocations\n",
        name(coll), algorithm.scheme, nranks, static_cast<unsigned long long>(steps),
        static_cast<unsigned long long>(edges), static_cast<unsigned long long>(held_bytes >> 10),
        static_cast<unsigned long long>(peak_bytes >> 10),
        static_cast<unsigned long long>(allocations));
  }
}

// The cache that holds schedules of such calls stays in its bound, too, signatures and all.
TEST_P(Scaling, ACacheOfThemStaysBounded) {
  constexpr uint64_t limit_bytes = uint64_t{4} << 20;
  const Algorithm& algorithm = *GetParam();
  ScheduleCache cache(limit_bytes);
  const Params params = algorithm.standard_params();
  for (Coll coll : algorithm.collectives)
    for (uint64_t more = 0; more < 4; ++more) {
      Problem call = problem(coll, 1);
      call.agreed.count += coll == Coll::barrier ? 0 : more;
      if (!algorithm.applies(call.agreed, topology, params)) continue;
      ASSERT_TRUE(cache.get(algorithm, call, Place{1, topology, params}).ok());
      EXPECT_LE(cache.bytes(), limit_bytes);
    }
}

INSTANTIATE_TEST_SUITE_P(Registry, Scaling,
                         testing::ValuesIn(algorithms().begin(), algorithms().end()),
                         [](const auto& info) {
                           return std::string(name(info.param->collectives[0])) + "_" +
                                  info.param->scheme;
                         });

}  // namespace
}  // namespace tutti
