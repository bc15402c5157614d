// 16-bit floats as fp32: the conversions, exhaustively, and sums of many ranks by every algorithm.
#include "engine/widening.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "../coll/call.hpp"
#include "pml/loopback.hpp"
#include "ranks.hpp"

namespace tutti {
namespace {

class Conversion : public testing::TestWithParam<Dtype> {};

TEST_P(Conversion, WideningIsExactAndComesBack) {
  for (uint32_t h = 0; h < 1 << 16; ++h) {
    const auto narrow = static_cast<uint16_t>(h);
    const float wide = to_f32(GetParam(), narrow);
    if (std::isnan(wide))
      EXPECT_TRUE(std::isnan(to_f32(GetParam(), from_f32(GetParam(), wide)))) << h;
    else
      EXPECT_EQ(from_f32(GetParam(), wide), narrow);
  }
  EXPECT_EQ(to_f32(GetParam(), GetParam() == Dtype::f16 ? 0x3c00 : 0x3f80), 1.0f);
  EXPECT_EQ(to_f32(GetParam(), GetParam() == Dtype::f16 ? 0xc000 : 0xc000), -2.0f);
}

TEST_P(Conversion, NarrowingGoesToTheNearestAndTiesToEven) {
  // Positive numbers follow each other as their bits do, up to infinity.
  const uint16_t infinity = GetParam() == Dtype::f16 ? 0x7c00 : 0x7f80;
  for (uint16_t h = 0; h + 1 < infinity; ++h) {
    const auto next = static_cast<uint16_t>(h + 1);
    const float low = to_f32(GetParam(), h), high = to_f32(GetParam(), next);
    ASSERT_LT(low, high);
    const auto middle = static_cast<float>((static_cast<double>(low) + high) / 2);
    EXPECT_EQ(from_f32(GetParam(), middle), h % 2 == 0 ? h : next);
    EXPECT_EQ(from_f32(GetParam(), std::nextafter(middle, low)), h);
    EXPECT_EQ(from_f32(GetParam(), std::nextafter(middle, high)), next);
    EXPECT_EQ(from_f32(GetParam(), -middle), (h % 2 == 0 ? h : next) | 0x8000);
  }
  EXPECT_EQ(from_f32(GetParam(), std::numeric_limits<float>::max()), infinity);
}

INSTANTIATE_TEST_SUITE_P(Types, Conversion, testing::Values(Dtype::f16, Dtype::bf16),
                         [](const auto& info) { return std::string(name(info.param)); });

using Narrow = std::vector<uint16_t>;

// One call of an algorithm on ranks as threads; what each of them has then.
std::vector<Narrow> run_wide(const Algorithm& algorithm, const Problem& problem,
                             const Topology& topology, const std::vector<Narrow>& inputs,
                             uint64_t seed) {
  const int nranks = static_cast<int>(inputs.size());
  LoopbackOptions options;
  options.seed = seed;
  Loopback loopback(nranks, options);
  std::vector<Narrow> outputs(inputs.size());
  run_ranks(nranks, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    Schedule schedule;
    ASSERT_TRUE(
        generate(algorithm, problem, Place{rank, topology, algorithm.standard_params()}, schedule)
            .ok());
    outputs[r].assign(schedule.output_count, 0xdead);
    std::vector<uint16_t> scratch(schedule.scratch_count);
    std::vector<float> wide(schedule.wide_count, std::numeric_limits<float>::quiet_NaN());
    Executor::Places places;
    places.schedule = &schedule;
    places.transport = &loopback.transport(rank);
    places.extent_bytes = sizeof(uint16_t);
    auto executor = Executor::open(std::move(places));
    ASSERT_TRUE(executor.ok());
    ExecutorCall call;
    call.input = inputs[r].data();
    call.output = outputs[r].data();
    call.scratch = scratch.data();
    call.wide = wide_arithmetic(problem.agreed.op, problem.agreed.dtype);
    call.wide.memory = wide.data();
    call.sequence = 1;
    (*executor)->bind(call);
    EXPECT_TRUE(run_operation(**executor).status.ok());
  });
  EXPECT_EQ(loopback.unmatched(), 0u);
  return outputs;
}

TEST(Widening, ACallWithoutWideMemoryIsRefused) {
  Problem problem;
  problem.agreed.coll = Coll::allreduce;
  problem.agreed.dtype = Dtype::f16;
  problem.agreed.count = 3;
  problem.agreed.wide = true;
  const Algorithm& ring = *find_algorithm(Coll::allreduce, "ring");
  Schedule schedule;
  ASSERT_TRUE(
      generate(ring, problem, Place{0, Topology::flat(1), ring.standard_params()}, schedule).ok());
  Executor::Places places;
  places.schedule = &schedule;
  places.extent_bytes = 2;
  auto executor = Executor::open(std::move(places));
  ASSERT_TRUE(executor.ok());
  uint16_t from[3] = {1, 2, 3}, to[3] = {};
  (*executor)->bind({from, to, nullptr, {}, 1});
  EXPECT_EQ((*executor)->start(), Status(Code::internal));
  float wide[9];
  ExecutorCall call{from, to, nullptr, {}, 1, wide_arithmetic(Op::sum, Dtype::f16)};
  call.wide.memory = wide;
  ASSERT_LE(schedule.wide_count, 9u);
  (*executor)->bind(call);
  EXPECT_TRUE(run_operation(**executor).status.ok());
  EXPECT_EQ(to[2], 3);
}

class WideSums : public testing::TestWithParam<Dtype> {};

TEST_P(WideSums, HaveTheErrorOfFp32AndTheSameBitsOnEveryRank) {
  const Dtype dtype = GetParam();
  constexpr uint64_t count = 61;
  std::mt19937_64 random(test_seed());
  int done = 0, worse = 0;
  for (const Algorithm* algorithm : algorithms())
    for (int nranks : {2, 5, 16}) {
      Problem problem;
      problem.agreed.coll = Coll::allreduce;
      problem.agreed.dtype = dtype;
      problem.agreed.count = count;
      problem.agreed.wide = true;
      Topology topology = Topology::flat(nranks);
      if (nranks > 2)
        for (int r = 0; r < nranks; ++r) topology.ranks.push_back({r / 3, -1});
      if (!algorithm->serves(Coll::allreduce) ||
          !algorithm->applies(problem.agreed, topology, algorithm->standard_params()))
        continue;
      std::vector<Narrow> inputs(static_cast<size_t>(nranks));
      for (Narrow& input : inputs)
        for (uint64_t i = 0; i < count; ++i)
          input.push_back(from_f32(dtype, static_cast<float>(random() % 100000) / 50000.0f - 0.5f));
      const auto outputs = run_wide(*algorithm, problem, topology, inputs, random());
      for (uint64_t i = 0; i < count; ++i) {
        double exact = 0, sizes = 0;
        uint16_t rounded_each_time = inputs[0][i];
        for (size_t r = 0; r < inputs.size(); ++r) {
          const float part = to_f32(dtype, inputs[r][i]);
          exact += part;
          sizes += std::fabs(part);
          if (r > 0) rounded_each_time = from_f32(dtype, to_f32(dtype, rounded_each_time) + part);
        }
        // Half a unit of the type for the last rounding, and the sum's own error in fp32.
        const double unit = dtype == Dtype::f16 ? 0x1p-11 : 0x1p-8;
        const double bound = unit * std::fabs(exact) + 0x1p-25 + 2 * (nranks - 1) * 0x1p-24 * sizes;
        const double got = to_f32(dtype, outputs[0][i]);
        EXPECT_LE(std::fabs(got - exact), bound * 1.0001)
            << algorithm->scheme << " of " << nranks << ", element " << i;
        worse += std::fabs(to_f32(dtype, rounded_each_time) - exact) > bound ? 1 : 0;
      }
      for (const Narrow& output : outputs)
        EXPECT_EQ(output, outputs[0]) << algorithm->scheme << " of " << nranks;
      if (HasFailure()) return;
      ++done;
    }
  EXPECT_GT(done, 12);
  // Partial sums of 16 bits would not pass.
  EXPECT_GT(worse, 100);
}

INSTANTIATE_TEST_SUITE_P(Types, WideSums, testing::Values(Dtype::f16, Dtype::bf16),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace tutti
