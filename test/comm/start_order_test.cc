// Calls that every rank begins in an order of its own. Ranks are threads.
#include "comm/start_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "comm/communicator.hpp"
#include "fake_base.hpp"

namespace tutti {
namespace {

const Config config;

// An allreduce of a few words that knows its result.
class Call {
 public:
  Call(uint64_t number, int rank, int nranks)
      : number_(number), rank_(rank), nranks_(nranks), send_(1 + number * 37 % 3000) {
    problem_.agreed.coll = Coll::allreduce;
    problem_.agreed.op = Op::sum;
    problem_.agreed.dtype = Dtype::i64;
    problem_.agreed.count = send_.size();
  }

  void start(Communicator& comm, int64_t round) {
    round_ = round;
    for (size_t i = 0; i < send_.size(); ++i) send_[i] = value(rank_, i);
    recv_.assign(send_.size(), -1);
    problem_.local.send = send_.data();
    problem_.local.recv = recv_.data();
    request_.done.store(false);
    comm.begin_in_any_order(number_, problem_, request_);
  }
  Request& request() { return request_; }
  bool done() const { return request_.done.load(std::memory_order_acquire); }
  void expect_right() const {
    for (size_t i = 0; i < recv_.size(); ++i) {
      int64_t sum = 0;
      for (int r = 0; r < nranks_; ++r) sum += value(r, i);
      ASSERT_EQ(recv_[i], sum) << "call " << number_ << " element " << i;
    }
  }

 private:
  int64_t value(int rank, size_t i) const {
    return static_cast<int64_t>(number_) * 1000003 + rank * 7919 + round_ * 31 +
           static_cast<int64_t>(i);
  }
  uint64_t number_;
  int rank_;
  int nranks_;
  int64_t round_ = 0;
  Problem problem_;
  Request request_;
  std::vector<int64_t> send_;
  std::vector<int64_t> recv_;
};

std::vector<std::unique_ptr<Call>> make_calls(size_t n, int rank, int nranks) {
  std::vector<std::unique_ptr<Call>> calls;
  for (size_t i = 1; i <= n; ++i) calls.push_back(std::make_unique<Call>(i, rank, nranks));
  return calls;
}

TEST(StartOrder, AnyOrderOnEveryRank) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  for (int trial = 0; trial < 20; ++trial) {
    std::mt19937_64 shared(seed + static_cast<uint64_t>(trial));
    const int nranks = 2 + static_cast<int>(shared() % 5);
    const size_t n = 1 + shared() % 40;
    FakeBase base(nranks);
    on_all_ranks(nranks, [&](int rank) {
      driven = {{&base, rank}};
      Engine engine(fake_hooks());
      auto comm = Communicator::open(base.of(rank), engine, config);
      ASSERT_TRUE(comm->settle().ok());
      std::mt19937_64 own(seed * 31 + static_cast<uint64_t>(rank + 100 * trial));
      auto calls = make_calls(n, rank, nranks);
      std::vector<size_t> order(n);
      std::iota(order.begin(), order.end(), 0);
      for (int round = 0; round < 4; ++round) {
        std::shuffle(order.begin(), order.end(), own);
        for (const size_t i : order) {
          calls[i]->start(*comm, round);
          if (own() % 3 != 0) comm->go();
          if (own() % 8 == 0) std::this_thread::yield();
        }
        comm->go();
        std::shuffle(order.begin(), order.end(), own);
        for (const size_t i : order) {
          ASSERT_TRUE(engine.wait(calls[i]->request()).ok());
          calls[i]->expect_right();
        }
        // Some ranks are in the next round by now: nothing of theirs may have been begun here.
      }
      EXPECT_FALSE(engine.any_pending());
      comm->close();
    });
  }
}

// What all have started comes to its end while others of each rank wait.
TEST(StartOrder, OneThatAllHaveStartedWaitsForNoOther) {
  constexpr int nranks = 3;
  FakeBase base(nranks);
  std::atomic<int> ended{0};
  on_all_ranks(nranks, [&](int rank) {
    driven = {{&base, rank}};
    Engine engine(fake_hooks());
    auto comm = Communicator::open(base.of(rank), engine, config);
    ASSERT_TRUE(comm->settle().ok());
    auto calls = make_calls(nranks + 1, rank, nranks);
    // Each its own one, more than a round can tell before the common one.
    const auto mine = static_cast<size_t>(rank);
    calls[mine]->start(*comm, 0);
    comm->go();
    for (int i = 0; i < 1000; ++i) engine.progress();
    calls[nranks]->start(*comm, 0);
    comm->go();
    ASSERT_TRUE(engine.wait(calls[nranks]->request()).ok());
    calls[nranks]->expect_right();
    EXPECT_FALSE(calls[mine]->done());
    ++ended;
    while (ended.load() != nranks) {
      engine.progress();
      std::this_thread::yield();
    }
    for (size_t i = 0; i < nranks; ++i)
      if (i != mine) calls[i]->start(*comm, 0);
    comm->go();
    for (size_t i = 0; i < nranks; ++i) {
      ASSERT_TRUE(engine.wait(calls[i]->request()).ok());
      calls[i]->expect_right();
    }
    comm->close();
  });
}

// The watchdog ends it, and later ones end alike.
TEST(StartOrder, AMissingStartIsNamedAndEndsTheCalls) {
  constexpr int nranks = 2;
  FakeBase base(nranks);
  std::atomic<bool> over{false};
  on_all_ranks(nranks, [&](int rank) {
    driven = {{&base, rank}};
    EngineHooks hooks = fake_hooks();
    hooks.fail_after_ns = 50'000'000;
    Engine engine(hooks);
    auto comm = Communicator::open(base.of(rank), engine, config);
    ASSERT_TRUE(comm->settle().ok());
    auto calls = make_calls(2, rank, nranks);
    for (int round = 0; round < 3; ++round) {
      calls[1]->start(*comm, round);
      comm->go();
      ASSERT_TRUE(engine.wait(calls[1]->request()).ok());
    }
    if (rank == 0) {
      calls[0]->start(*comm, 0);
      comm->go();
      EXPECT_EQ(engine.wait(calls[0]->request()), Status(Code::timeout));
      over = true;
    }
    while (!over.load()) {
      engine.progress();
      std::this_thread::yield();
    }
    calls[1]->start(*comm, 9);
    comm->go();
    EXPECT_FALSE(engine.wait(calls[1]->request()).ok());
    comm->close();
  });
}

TEST(StartOrder, ThreadsOfARankStartAtOnce) {
  constexpr int nranks = 3;
  constexpr size_t a_thread = 4;
  FakeBase base(nranks);
  on_all_ranks(nranks, [&](int rank) {
    driven = {{&base, rank}};
    EngineHooks hooks = fake_hooks();
    hooks.single_threaded = false;
    Engine engine(hooks);
    auto comm = Communicator::open(base.of(rank), engine, config);
    ASSERT_TRUE(comm->settle().ok());
    auto calls = make_calls(2 * a_thread, rank, nranks);
    const auto run = [&](size_t first) {
      for (int round = 0; round < 200; ++round) {
        for (size_t i = 0; i < a_thread; ++i) {
          calls[first + (rank % 2 == 0 ? i : a_thread - 1 - i)]->start(*comm, round);
          comm->go();
        }
        for (size_t i = 0; i < a_thread; ++i) {
          ASSERT_TRUE(engine.wait(calls[first + i]->request()).ok());
          calls[first + i]->expect_right();
        }
      }
    };
    std::thread other(run, a_thread);
    run(0);
    other.join();
    comm->close();
  });
}

}  // namespace
}  // namespace tutti
