// Every algorithm that reduces, with partial results as fp32; and schedules that break it.
#include "sched/widen.hpp"

#include <gtest/gtest.h>

#include "../coll/call.hpp"

namespace tutti {
namespace {

// The call's problems with 16-bit elements whose partial sums are agreed to be fp32.
std::vector<Problem> wide_problems(const Call& call) {
  std::vector<Problem> problems = call.problems();
  for (Problem& problem : problems) {
    problem.agreed.dtype = Dtype::bf16;
    problem.agreed.wide = true;
  }
  return problems;
}

TEST(Widen, EveryReductionIsProven) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(text("seed {}", seed));
  uint64_t draw = seed;
  int proven = 0, narrow_caught = 0;
  for (const Algorithm* algorithm : algorithms())
    for (Coll coll : algorithm->collectives) {
      if (!reduces(coll)) continue;
      for (int nranks : {1, 2, 3, 5, 8, 13})
        for (uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{40}, uint64_t{70000}}) {
          const Call call(coll, nranks, count, true, ++draw);
          Topology topology = Topology::flat(nranks);
          for (int r = 0; r < nranks; ++r) topology.ranks.push_back({r / 2, -1});
          const Params params = algorithm->standard_params();
          std::vector<Problem> problems = wide_problems(call);
          if (!algorithm->applies(problems[0].agreed, topology, params)) continue;
          const Verdict verdict =
              verify(problems, schedules(*algorithm, problems, topology, params));
          ASSERT_TRUE(verdict.proven)
              << algorithm->scheme << " " << call.describe() << ": " << verdict.text;
          ++proven;
          // What was not widened rounds partial sums, if there are any.
          std::vector<Problem> narrow = problems;
          for (Problem& problem : narrow) problem.agreed.wide = false;
          if (nranks < 3 || count < 40) continue;
          const Verdict caught = verify(problems, schedules(*algorithm, narrow, topology, params));
          if (caught.proven) continue;  // a root or a block without partial sums
          EXPECT_EQ(caught.rule, Rule::precision) << caught.text;
          ++narrow_caught;
        }
    }
  EXPECT_GT(proven, 200);
  EXPECT_GT(narrow_caught, 100);
}

// Ranks 0, 1, 2 add up in a chain; rank 1 keeps its partial sum in `at`.
std::vector<Schedule> chain(Space at) {
  std::vector<Schedule> all(3);
  for (int r = 0; r < 3; ++r) {
    Schedule& s = all[static_cast<size_t>(r)];
    s.input_count = 4;
    s.output_count = r == 2 ? 4 : 0;
    s.wide_count = 12;
    s.scratch_count = 4;
    ScheduleBuilder b(s, r, 3);
    const Ref own{Space::wide, 0, 4}, theirs{Space::wide, 4, 4}, sum{Space::wide, 8, 4};
    auto got = b.copy({Space::input, 0, 4}, own, {});
    Ref have = own;
    if (r > 0) {
      auto came = b.recv(r - 1, theirs, {});
      got = b.reduce(theirs, own, sum, {got, came});
      have = sum;
    }
    if (r == 1 && at != Space::wide) {
      auto rounded = b.copy(sum, {at, 0, 4}, {got});
      got = b.copy({at, 0, 4}, sum, {rounded});
    }
    if (r < 2)
      b.send(r + 1, have, {got});
    else
      b.copy(have, {Space::output, 0, 4}, {got});
  }
  return all;
}

std::vector<Problem> chain_problems() {
  Problem problem;
  problem.agreed.coll = Coll::reduce;
  problem.agreed.root = 2;
  problem.agreed.dtype = Dtype::f16;
  problem.agreed.count = 4;
  problem.agreed.wide = true;
  return std::vector<Problem>(3, problem);
}

TEST(Widen, CatchesAPartialSumThatIsRounded) {
  const Verdict fine = verify(chain_problems(), chain(Space::wide));
  EXPECT_TRUE(fine.proven) << fine.text;
  EXPECT_EQ(verify(chain_problems(), chain(Space::scratch)).rule, Rule::precision);
}

TEST(Widen, CatchesEndsAndOperandsOfUnequalWidth) {
  std::vector<Schedule> all = chain(Space::wide);
  for (Step& step : all[1].steps)
    if (step.kind == StepKind::recv) step.to = {Space::scratch, 0, 4};
  EXPECT_EQ(verify(chain_problems(), all).rule, Rule::precision);
  all = chain(Space::wide);
  for (Step& step : all[1].steps)
    if (step.kind == StepKind::reduce) step.with = {Space::input, 0, 4};
  EXPECT_EQ(verify(chain_problems(), all).rule, Rule::precision);
}

TEST(Widen, LongVectorsAreConvertedInPieces) {
  Schedule s;
  Problem problem = chain_problems()[0];
  problem.agreed.coll = Coll::allreduce;
  problem.agreed.count = 1 << 20;
  const Algorithm& ring = *find_algorithm(Coll::allreduce, "ring");
  ASSERT_TRUE(generate(ring, problem, Place{0, Topology::flat(2), ring.standard_params()}, s).ok());
  int in = 0, out = 0;
  for (const Step& step : s.steps) {
    in += step.kind == StepKind::copy && step.from.space == Space::input ? 1 : 0;
    out += step.kind == StepKind::copy && step.to.space == Space::output && step.to.count ? 1 : 0;
  }
  EXPECT_EQ(in, 8);
  EXPECT_EQ(out, 8);
  EXPECT_EQ(s.scratch_count, 0u);
}

}  // namespace
}  // namespace tutti
