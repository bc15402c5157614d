// Every registered algorithm, run by the executor on loopback ranks against a sequential reference:
// fresh random data, P = 1..9, awkward counts, in place, ordered operations, short and long
// messages in random order of completion.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "../coll/call.hpp"
#include "coll/registry.hpp"
#include "engine/executor.hpp"
#include "guarded.hpp"
#include "pml/loopback.hpp"
#include "ranks.hpp"

namespace tutti {
namespace {

constexpr int max_ranks = 9;
constexpr uint64_t calls_of_one_executor = 3;

using Words = std::vector<uint64_t>;

Words words_of(const Guarded& memory) {
  Words words(memory.bytes() / 8);
  if (!words.empty()) std::memcpy(words.data(), memory.data(), memory.bytes());
  return words;
}

// One rank of the call: memory sized by the contract, elements of 64 bits.
struct Memory {
  Memory(const Schedule& schedule, uint64_t seed)
      : input(schedule.input_count * 8),
        output(schedule.output_count * 8),
        scratch(schedule.scratch_count * 8),
        random(seed) {}
  void fill() {
    for (Guarded* memory : {&input, &output})
      for (size_t i = 0; i < memory->bytes() / 8; ++i) {
        const uint64_t value = random();
        std::memcpy(memory->data() + 8 * i, &value, 8);
      }
    before = words_of(output);
    sent = words_of(input);
  }
  bool intact() const {
    return input.intact() && output.intact() && scratch.intact() && words_of(input) == sent;
  }
  Guarded input, output, scratch;
  Words before, sent;
  std::mt19937_64 random;
};

class Trial {
 public:
  Trial(const Algorithm& algorithm, const Call& call, const Params& params, uint64_t seed)
      : call_(call), nranks_(static_cast<int>(call.problems().size())) {
    topology_.nranks = nranks_;
    schedules_ = schedules(algorithm, call, topology_, params);
    LoopbackOptions options;
    options.seed = seed;
    options.eager_bytes = seed % 3 == 0 ? 0 : 40;
    options.eager_total_bytes = 100;
    loopback_ = std::make_unique<Loopback>(nranks_, options);
    for (size_t r = 0; r < schedules_.size(); ++r) {
      places_.push_back(std::make_unique<Memory>(schedules_[r], seed * 16 + r));
      Executor::Places places;
      places.schedule = &schedules_[r];
      places.transport = &loopback_->transport(static_cast<int>(r));
      places.extent_bytes = 8;
      Result<std::unique_ptr<Executor>> executor = Executor::open(std::move(places));
      executors_.push_back(executor.ok() ? std::move(*executor) : nullptr);
    }
  }

  void check() {
    ASSERT_EQ(executors_.size(), static_cast<size_t>(nranks_));
    for (auto& executor : executors_) ASSERT_NE(executor, nullptr);
    for (uint64_t sequence = 1; sequence <= calls_of_one_executor; ++sequence) {
      for (auto& place : places_) place->fill();
      run_ranks(nranks_, [&](int rank) { run_call(static_cast<size_t>(rank), sequence); });
      for (int rank = 0; rank < nranks_; ++rank) check_rank(rank);
      EXPECT_EQ(loopback_->unmatched(), 0u);
      if (testing::Test::HasFailure()) return;
    }
  }

 private:
  void run_call(size_t rank, uint64_t sequence) {
    Memory& place = *places_[rank];
    executors_[rank]->bind({place.input.data(), place.output.data(), place.scratch.data(),
                            call_.agreed().commutative ? sum_u64() : composition(), sequence});
    Status status = run_operation(*executors_[rank]).status;
    EXPECT_TRUE(status.ok()) << status.text();
  }

  // Element k of what the rank contributed.
  uint64_t contributed(int rank, uint64_t k) const {
    const Memory& place = *places_[static_cast<size_t>(rank)];
    for (const Piece& piece :
         contribution(call_.problems()[static_cast<size_t>(rank)], rank, nranks_)) {
      if (k < piece.index || k - piece.index >= piece.where.count) continue;
      const Words& from = piece.where.space == Space::input ? place.sent : place.before;
      return from[piece.where.offset + k - piece.index];
    }
    ADD_FAILURE() << "rank " << rank << " contributes no element " << k;
    return 0;
  }

  uint64_t reference(const Piece& piece, uint64_t i) const {
    uint64_t value = contributed(piece.first, piece.index + i);
    for (int rank = piece.first + 1; rank <= piece.last; ++rank) {
      const uint64_t next = contributed(rank, piece.index + i);
      value = call_.agreed().commutative ? value + next : compose(value, next);
    }
    return value;
  }

  void check_rank(int rank) {
    const Memory& place = *places_[static_cast<size_t>(rank)];
    Words expected = place.before;
    for (const Piece& piece : expectation(call_.problems(), rank))
      for (uint64_t i = 0; i < piece.where.count; ++i)
        expected[piece.where.offset + i] = reference(piece, i);
    EXPECT_EQ(words_of(place.output), expected) << "rank " << rank;
    EXPECT_TRUE(place.intact()) << "rank " << rank;
  }

  const Call& call_;
  int nranks_;
  Topology topology_;
  std::vector<Schedule> schedules_;
  std::unique_ptr<Loopback> loopback_;
  std::vector<std::unique_ptr<Memory>> places_;
  std::vector<std::unique_ptr<Executor>> executors_;
};

class AlgorithmOnLoopback : public testing::TestWithParam<const Algorithm*> {};

TEST_P(AlgorithmOnLoopback, GivesTheReference) {
  const Algorithm& algorithm = *GetParam();
  uint64_t draw = test_seed(), done = 0;
  Params small = algorithm.standard_params();
  for (size_t i = 0; i < algorithm.parameters.size(); ++i)
    small.values[i] = std::max<uint64_t>(algorithm.parameters[i].least, 3);
  for (Coll coll : algorithm.collectives) {
    for (int nranks = 1; nranks <= max_ranks; ++nranks) {
      for (uint64_t count : {0, 1, 2 * nranks + 1, 33}) {
        for (bool commutative : {true, false}) {
          if (!commutative && !reduces(coll)) continue;
          const Params& params = draw % 2 == 0 ? small : algorithm.standard_params();
          Call call(coll, nranks, count, commutative, ++draw);
          Topology topology;
          topology.nranks = nranks;
          if (!algorithm.applies(call.agreed(), topology, params)) continue;
          SCOPED_TRACE(call.describe());
          Trial(algorithm, call, params, draw).check();
          if (HasFailure()) return;
          ++done;
        }
      }
    }
  }
  EXPECT_GT(done, 0u);
}

INSTANTIATE_TEST_SUITE_P(Registry, AlgorithmOnLoopback,
                         testing::ValuesIn(algorithms().begin(), algorithms().end()),
                         [](const auto& info) {
                           return std::string(name(info.param->collectives[0])) + "_" +
                                  info.param->scheme;
                         });

}  // namespace
}  // namespace tutti
