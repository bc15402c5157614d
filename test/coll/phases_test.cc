// Phases by themselves, each proven as the collective that it is. As parts of algorithms the
// registry's test proves them.
#include "coll/phases.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "call.hpp"

namespace tutti {
namespace {

// Every rank's schedule of a call, written by `write`.
Verdict prove(const Call& call, const std::function<void(int rank, ScheduleBuilder&)>& write) {
  const int nranks = static_cast<int>(call.problems().size());
  std::vector<Schedule> all(call.problems().size());
  for (int r = 0; r < nranks; ++r) {
    Schedule& s = all[static_cast<size_t>(r)];
    const Extent size = extent(call.problems()[static_cast<size_t>(r)], r, nranks);
    s.input_count = size.input;
    s.output_count = size.output;
    ScheduleBuilder builder(s, r, nranks);
    write(r, builder);
  }
  return verify(call.problems(), all);
}

TEST(Phases, TreesReachEveryRankFromEveryRoot) {
  for (int nranks : {1, 2, 5, 8, 13})
    for (int radix : {2, 3, 4})
      for (uint64_t seed = 0; seed < 8; ++seed) {
        const Call down(Coll::bcast, nranks, 9, true, seed);
        const int root = down.agreed().root;
        Verdict verdict = prove(down, [&](int rank, ScheduleBuilder& b) {
          knomial_bcast(b, rank, nranks, root, radix, output_ref(0, 9), no_step, 3);
        });
        EXPECT_TRUE(verdict.proven) << down.describe() << ": " << verdict.text;
        const Call up(Coll::reduce, nranks, 9, true, seed);
        verdict = prove(up, [&](int rank, ScheduleBuilder& b) {
          const Problem& problem = up.problems()[static_cast<size_t>(rank)];
          knomial_reduce(b, rank, nranks, up.agreed().root, radix,
                         own_vector(problem.local.in_place, 9), output_ref(0, 9), 0);
        });
        EXPECT_TRUE(verdict.proven) << up.describe() << ": " << verdict.text;
      }
}

TEST(Phases, TreesWithRootZeroKeepTheOrder) {
  int seen = 0;
  for (int nranks : {2, 6, 9})
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const Call call(Coll::reduce, nranks, 5, false, seed);
      if (call.agreed().root != 0) continue;
      const Verdict verdict = prove(call, [&](int rank, ScheduleBuilder& b) {
        const Problem& problem = call.problems()[static_cast<size_t>(rank)];
        knomial_reduce(b, rank, nranks, 0, 2, own_vector(problem.local.in_place, 5),
                       output_ref(0, 5), 0);
      });
      EXPECT_TRUE(verdict.proven) << call.describe() << ": " << verdict.text;
      ++seen;
    }
  EXPECT_GT(seen, 0);
}

TEST(Phases, RingsGoRoundWithBlocksOfAnyLength) {
  for (int nranks : {2, 3, 7})
    for (uint64_t count : {0, 1, 10})
      for (uint64_t size : {1, 4, 100}) {
        const Call call(Coll::reduce_scatter, nranks, count, true, count + size);
        const std::vector<Block> blocks = agreed_blocks(call.agreed(), nranks);
        uint64_t longest = 0;
        for (const Block& block : blocks) longest = std::max(longest, block.count);
        const Verdict verdict = prove(call, [&](int rank, ScheduleBuilder& b) {
          const bool in_place = call.problems()[static_cast<size_t>(rank)].local.in_place;
          RingReduceScatter{.rank = rank,
                            .nranks = nranks,
                            .own = own_vector(in_place, agreed_total(call.agreed(), nranks)),
                            .blocks = blocks,
                            .result = output_ref(0, blocks[static_cast<size_t>(rank)].count),
                            .pieces = pieces(longest, size, 1, 8),
                            .overlaps = in_place}
              .append(b);
        });
        EXPECT_TRUE(verdict.proven) << call.describe() << ": " << verdict.text;
      }
}

TEST(Phases, ExchangesLeaveOutWhatIsEmptyOnlyWhenSparse) {
  const Call call(Coll::alltoallv, 6, 3, true, 2);
  size_t steps[2] = {0, 0};
  for (bool sparse : {false, true}) {
    const Verdict verdict = prove(call, [&](int rank, ScheduleBuilder& b) {
      EXPECT_TRUE(
          pairwise_exchange(call.problems()[static_cast<size_t>(rank)], rank, 6, 2, sparse, b)
              .ok());
      steps[sparse ? 1 : 0] += b.schedule().steps.size();
    });
    EXPECT_TRUE(verdict.proven) << verdict.text;
  }
  EXPECT_LT(steps[1], steps[0]);
}

}  // namespace
}  // namespace tutti
