// Ranks as threads over a base that is a few lines: set-up, queueing behind it, choice, close.
#include "comm/communicator.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"

namespace tutti {
namespace {

// The base of one communicator: an allgather whose data arrives when ranks make progress.
class FakeBase {
 public:
  explicit FakeBase(int nranks) : mine_(static_cast<size_t>(nranks)), all_(mine_.size()) {}

  BaseComm of(int rank) {
    BaseComm base;
    auto* handle = new Handle{this, rank};
    handles_[static_cast<size_t>(rank)].reset(handle);
    base.handle = handle;
    base.rank = rank;
    base.nranks = static_cast<int>(mine_.size());
    base.name = "fake";
    base.nodes.assign(mine_.size(), 0);
    base.allgather_start = [](void* opaque, const void* mine, void* all, size_t bytes,
                              void** request) {
      auto* h = static_cast<Handle*>(opaque);
      std::lock_guard lock(h->base->mutex_);
      const auto* from = static_cast<const std::byte*>(mine);
      h->base->mine_[static_cast<size_t>(h->rank)].assign(from, from + bytes);
      h->base->all_[static_cast<size_t>(h->rank)] = static_cast<std::byte*>(all);
      *request = h;
      return Status();
    };
    base.allgather_test = [](void* request) {
      auto* h = static_cast<Handle*>(request);
      return h->base->deliver(h->rank) ? Poll::done() : Poll::busy();
    };
    return base;
  }

  // What the base's progress on that rank does: hand over what has come.
  bool deliver(int rank) {
    std::lock_guard lock(mutex_);
    std::byte* all = all_[static_cast<size_t>(rank)];
    if (all == nullptr) return false;
    bool complete = true;
    for (size_t r = 0; r < mine_.size(); ++r) {
      complete &= !mine_[r].empty();
      if (!mine_[r].empty())
        std::memcpy(all + r * mine_[r].size(), mine_[r].data(), mine_[r].size());
    }
    return complete;
  }

 private:
  struct Handle {
    FakeBase* base;
    int rank;
  };
  std::mutex mutex_;
  std::vector<std::vector<std::byte>> mine_;
  std::vector<std::byte*> all_;
  std::array<std::unique_ptr<Handle>, 64> handles_;
};

// base_progress has no argument: each thread says which bases it drives.
thread_local std::vector<std::pair<FakeBase*, int>> driven;

EngineHooks hooks() {
  EngineHooks hooks;
  hooks.base_progress = [] {
    for (auto& [base, rank] : driven) base->deliver(rank);
    std::this_thread::yield();
  };
  return hooks;
}

void on_all_ranks(int nranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < nranks; ++r)
    threads.emplace_back([&, r] {
      driven.clear();
      body(r);
    });
  for (auto& thread : threads) thread.join();
}

Problem sum_of(const std::vector<int64_t>& send, std::vector<int64_t>& recv) {
  Problem problem;
  problem.agreed.dtype = Dtype::i64;
  problem.agreed.count = send.size();
  problem.local.send = send.data();
  problem.local.recv = recv.data();
  return problem;
}

std::vector<int64_t> data_of(int rank, size_t count, int64_t salt) {
  std::vector<int64_t> data(count);
  std::iota(data.begin(), data.end(), salt * 1000 + rank * 17);
  return data;
}

void expect_sum(const std::vector<int64_t>& got, int nranks, int64_t salt) {
  for (size_t i = 0; i < got.size(); ++i) {
    int64_t want = 0;
    for (int r = 0; r < nranks; ++r) want += salt * 1000 + r * 17 + static_cast<int64_t>(i);
    ASSERT_EQ(got[i], want) << "element " << i;
  }
}

const Config config;

Communicator::Below no_below() {
  return {[] {
            ADD_FAILURE() << "went below";
            return Status();
          },
          [] { return Poll::done(); }};
}

TEST(Communicator, SetsUpAtTheFirstCallAndReduces) {
  constexpr int nranks = 4;
  FakeBase base(nranks);
  on_all_ranks(nranks, [&](int rank) {
    driven = {{&base, rank}};
    Engine engine(hooks());
    auto comm = Communicator::open(base.of(rank), engine, config);
    ASSERT_TRUE(comm->settle().ok());
    for (size_t count : {size_t{0}, size_t{1}, size_t{5}, size_t{6}, size_t{700}, size_t{99999}}) {
      auto send = data_of(rank, count, static_cast<int64_t>(count));
      std::vector<int64_t> recv(count, -1);
      Problem problem = sum_of(send, recv);
      ASSERT_EQ(comm->choose(problem.agreed), Path::native);
      ASSERT_TRUE(comm->run(problem).ok());
      expect_sum(recv, nranks, static_cast<int64_t>(count));
    }
    comm->close();
  });
}

TEST(Communicator, NonblockingFirstCallsQueueBehindSetupInOppositeOrder) {
  constexpr int nranks = 2;
  FakeBase a(nranks);
  FakeBase b(nranks);
  on_all_ranks(nranks, [&](int rank) {
    driven = {{&a, rank}, {&b, rank}};
    Engine engine(hooks());
    FakeBase* order[2] = {rank == 0 ? &a : &b, rank == 0 ? &b : &a};
    std::unique_ptr<Communicator> comms[2];
    std::vector<int64_t> send[2];
    std::vector<int64_t> recv[2];
    Request requests[2];
    for (int i = 0; i < 2; ++i) {
      comms[i] = Communicator::open(order[i]->of(rank), engine, config);
      const int64_t salt = order[i] == &a ? 1 : 2;
      send[i] = data_of(rank, 3000, salt);
      recv[i].assign(3000, -1);
      ASSERT_TRUE(comms[i]->start(sum_of(send[i], recv[i]), no_below(), requests[i]).ok());
    }
    EXPECT_TRUE(engine.any_pending());
    for (int i : {1, 0}) ASSERT_TRUE(engine.wait(requests[i]).ok());
    for (int i = 0; i < 2; ++i) expect_sum(recv[i], nranks, order[i] == &a ? 1 : 2);
    EXPECT_FALSE(engine.any_pending());
    for (auto& comm : comms) comm->close();
  });
}

TEST(Communicator, BlockingCallsStayBehindPendingOnes) {
  constexpr int nranks = 3;
  FakeBase base(nranks);
  on_all_ranks(nranks, [&](int rank) {
    driven = {{&base, rank}};
    Engine engine(hooks());
    auto comm = Communicator::open(base.of(rank), engine, config);
    constexpr int pending = 5;
    std::vector<int64_t> send[pending];
    std::vector<int64_t> recv[pending];
    Request requests[pending];
    for (int i = 0; i < pending; ++i) {
      send[i] = data_of(rank, 100 * static_cast<size_t>(i + 1), i);
      recv[i].assign(send[i].size(), -1);
      ASSERT_TRUE(comm->start(sum_of(send[i], recv[i]), no_below(), requests[i]).ok());
    }
    auto last = data_of(rank, 64, 9);
    std::vector<int64_t> result(64);
    ASSERT_TRUE(comm->settle().ok());
    ASSERT_TRUE(comm->run(sum_of(last, result)).ok());
    expect_sum(result, nranks, 9);
    for (int i = 0; i < pending; ++i) {
      EXPECT_TRUE(requests[i].done.load());
      expect_sum(recv[i], nranks, i);
    }
    comm->close();
  });
}

TEST(Communicator, SeveralNodesAreSettledAtOnceAndGoBelow) {
  FakeBase base(2);
  Engine engine(hooks());
  BaseComm spread = base.of(0);
  spread.nodes = {0, 1};
  auto comm = Communicator::open(spread, engine, config);
  EXPECT_TRUE(comm->settled());
  EXPECT_NE(comm->choose(Agreed{}), Path::native);
  comm->close();
}

TEST(Communicator, OneRanksOtherSettingsSendAllBelowAndQueuedCallsInOrder) {
  const log::Level before = log::threshold.exchange(log::Level::off);
  constexpr int nranks = 3;
  FakeBase base(nranks);
  on_all_ranks(nranks, [&](int rank) {
    driven = {{&base, rank}};
    Engine engine(hooks());
    Config own;
    if (rank == 1) own.gpu_ctas = 7;
    auto comm = Communicator::open(base.of(rank), engine, own);
    std::vector<int> begun;
    std::vector<int64_t> send(4);
    std::vector<int64_t> recv(4);
    Request first;
    Request second;
    auto below = [&](int number) {
      return Communicator::Below{[&begun, number] {
                                   begun.push_back(number);
                                   return Status();
                                 },
                                 [] { return Poll::done(); }};
    };
    ASSERT_TRUE(comm->start(sum_of(send, recv), below(1), first).ok());
    ASSERT_TRUE(comm->start_below(below(2), second).ok());
    ASSERT_TRUE(engine.wait(second).ok());
    EXPECT_EQ(begun, (std::vector<int>{1, 2}));
    EXPECT_NE(comm->choose(Agreed{}), Path::native);
    EXPECT_NE(comm->describe().find("settings"), std::string::npos) << comm->describe();
    comm->close();
  });
  log::threshold.store(before);
}

TEST(Communicator, ManyInTurnLeakNoSlot) {
  constexpr int nranks = 2;
  constexpr int turns = 1500;  // more than there are slots
  std::vector<std::unique_ptr<FakeBase>> bases;
  for (int i = 0; i < turns; ++i) bases.push_back(std::make_unique<FakeBase>(nranks));
  on_all_ranks(nranks, [&](int rank) {
    Engine engine(hooks());
    for (int i = 0; i < turns; ++i) {
      FakeBase& base = *bases[static_cast<size_t>(i)];
      driven = {{&base, rank}};
      auto comm = Communicator::open(base.of(rank), engine, config);
      auto send = data_of(rank, 2, i);
      std::vector<int64_t> recv(2);
      ASSERT_TRUE(comm->settle().ok());
      ASSERT_EQ(comm->choose(sum_of(send, recv).agreed), Path::native) << comm->describe();
      ASSERT_TRUE(comm->run(sum_of(send, recv)).ok());
      expect_sum(recv, nranks, i);
      comm->close();
    }
  });
}

}  // namespace
}  // namespace tutti
