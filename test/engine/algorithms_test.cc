// Every registered algorithm, run by the executor on loopback ranks against a sequential reference:
// fresh random data, P = 1..9, awkward counts, in place, buffers on devices, ordered operations, short and long
// messages in random order of completion.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "coll/in_network.hpp"
#include "pml/loopback.hpp"
#include "trial.hpp"

namespace tutti {
namespace {

constexpr int max_ranks = 9;
constexpr uint64_t calls_of_one_executor = 3;

void run_trial(const Algorithm& algorithm, const Call& call, const Params& params,
               const Topology& topology, uint64_t seed) {
  const int nranks = static_cast<int>(call.problems().size());
  LoopbackOptions options;
  options.seed = seed;
  options.eager_bytes = seed % 3 == 0 ? 0 : 40;
  options.eager_total_bytes = 100;
  Loopback loopback(nranks, options);
  Trial trial(algorithm, call, params, seed, topology,
              [&](int rank) { return &loopback.transport(rank); });
  for (uint64_t sequence = 1; sequence <= calls_of_one_executor; ++sequence) {
    trial.fill();
    run_ranks(nranks, [&](int rank) { trial.run(rank, sequence); });
    for (int rank = 0; rank < nranks; ++rank) trial.check(rank);
    EXPECT_EQ(loopback.unmatched(), 0u);
    if (testing::Test::HasFailure()) return;
  }
}

class AlgorithmOnLoopback : public testing::TestWithParam<const Algorithm*> {};

TEST_P(AlgorithmOnLoopback, GivesTheReference) {
  const Algorithm& algorithm = *GetParam();
  uint64_t draw = test_seed(), done = 0;
  Params small = algorithm.standard_params();
  for (size_t i = 0; i < algorithm.parameters.size(); ++i) {
    const Param& param = algorithm.parameters[i];
    if (param.unit != Param::Unit::choice)
      small.values[i] = std::clamp<uint64_t>(3, param.least, param.most);
  }
  for (Coll coll : algorithm.collectives) {
    for (int nranks = 1; nranks <= max_ranks; ++nranks) {
      for (uint64_t count : {0, 1, 2 * nranks + 1, 33}) {
        for (bool commutative : {true, false}) {
          if (!commutative && !reduces(coll)) continue;
          const Params& params = draw % 2 == 0 ? small : algorithm.standard_params();
          Call call(coll, nranks, count, commutative, ++draw);
          if (draw % 3 == 0) call.put_on_devices();
          const Topology topology = trial_topology(nranks, draw);
          if (!algorithm.applies(call.agreed(), topology, params)) continue;
          SCOPED_TRACE(call.describe());
          run_trial(algorithm, call, params, topology, draw);
          if (HasFailure()) return;
          ++done;
        }
      }
    }
  }
  // No topology here has switches that compute, since nothing runs their steps.
  EXPECT_EQ(done == 0, is_in_network(algorithm));
}

INSTANTIATE_TEST_SUITE_P(Registry, AlgorithmOnLoopback,
                         testing::ValuesIn(algorithms().begin(), algorithms().end()),
                         [](const auto& info) {
                           return std::string(name(info.param->collectives[0])) + "_" +
                                  info.param->scheme;
                         });

}  // namespace
}  // namespace tutti
