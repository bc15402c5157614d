// Choices: the same as tune::select, from any number of threads, and no two calls taken for one.
#include "comm/choices.hpp"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

namespace tutti {
namespace {

TEST(Choices, SayWhatSelectSaysToAllThreads) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  const Topology topology = *parse_topology("node:4 rank:2");
  const Tuning tuning;
  Choices choices;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 draw(seed + t);
      for (int i = 0; i < 600; ++i) {
        Agreed agreed;
        agreed.coll = draw() % 2 == 0 ? Coll::allreduce : Coll::bcast;
        agreed.dtype = Dtype::f32;
        agreed.root = agreed.coll == Coll::bcast ? static_cast<int>(draw() % 8) : 0;
        agreed.count = uint64_t{1} << draw() % 24;
        const Choice want = select(agreed, topology, tuning);
        const Choice got = choices.get(agreed, topology, tuning);
        ASSERT_EQ(got.algorithm, want.algorithm);
        ASSERT_EQ(got.params, want.params);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Choices, TellCallsApartByTheirCounts) {
  const Topology topology = *parse_topology("node:4 rank:2");
  const auto rules = *parse_rules(Coll::allgatherv, "ring @ ..1k; below @ 1k..");
  Tuning tuning;
  tuning.rules = rules;
  Choices choices;
  for (int again = 0; again < 2; ++again)
    for (uint64_t last : {uint64_t{1}, uint64_t{50000}}) {
      const std::vector<uint64_t> counts = {1, 1, 1, 1, 1, 1, 1, last};
      Agreed agreed;
      agreed.coll = Coll::allgatherv;
      agreed.counts = counts;
      EXPECT_EQ(choices.get(agreed, topology, tuning).algorithm == nullptr, last == 50000);
    }
}

}  // namespace
}  // namespace tutti
