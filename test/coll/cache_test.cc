#include "coll/cache.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "call.hpp"

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

// Generation at 4,096 ranks: under 16 MiB a rank, for every algorithm. The time is bench/schedule_bench's.
class Scaling : public testing::TestWithParam<const Algorithm*> {};

TEST_P(Scaling, GeneratesFourThousandRanksInBoundedMemory) {
  constexpr int nranks = 4096;
  const Algorithm& algorithm = *GetParam();
  const Topology topology = *parse_topology("node:512 gpu:8 nic:8");
  const std::vector<uint64_t> blocks(nranks, 1000);
  const Params params = algorithm.standard_params();
  for (Coll coll : algorithm.collectives) {
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
    if (!algorithm.applies(problem.agreed, topology, params)) continue;
    for (int rank : {0, 1, 2047, 4095}) {
      if (rank == 0 && coll == Coll::gatherv) problem.local.recv_counts = blocks;
      if (rank == 0 && coll == Coll::scatterv) problem.local.send_counts = blocks;
      Schedule schedule;
      ASSERT_TRUE(generate(algorithm, problem, Place{rank, topology, params}, schedule).ok());
      EXPECT_LT(bytes_of(schedule), size_t{16} << 20) << name(coll) << " rank " << rank;
    }
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
