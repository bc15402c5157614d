// Ranks as threads over a base that is a few lines: set-up, queueing behind it, choice, close.
#include "comm/communicator.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "fake_base.hpp"

namespace tutti {
namespace {

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
    Engine engine(fake_hooks());
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
    Engine engine(fake_hooks());
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
    Engine engine(fake_hooks());
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

TEST(Communicator, SeveralNodesWithoutANetworkAreSettledAtOnceAndGoBelow) {
  FakeBase base(2);
  Engine engine(fake_hooks());
  BaseComm spread = base.of(0);
  spread.nodes = {0, 1};
  spread.network = false;
  const Config standard;
  auto comm = Communicator::open(spread, engine, standard);
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
    Engine engine(fake_hooks());
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

bool offered(const Job& job, Coll coll) {
  return (calls_wanted(job, Config()) >> static_cast<uint32_t>(coll) & 1) != 0;
}

TEST(Communicator, AskedBeforeAProblemIsMadeItWantsWhatItMayChoose) {
  constexpr int nranks = 2;
  FakeBase base(nranks);
  on_all_ranks(nranks, [&](int rank) {
    driven = {{&base, rank}};
    Engine engine(fake_hooks());
    auto comm = Communicator::open(base.of(rank), engine, config);
    ASSERT_TRUE(comm->settle().ok());
    for (size_t i = 0; i < coll_count; ++i) {
      Agreed agreed;
      agreed.coll = static_cast<Coll>(i);
      agreed.dtype = Dtype::i32;
      EXPECT_EQ(comm->wants(agreed.coll), comm->choose(agreed) == Path::native) << coll_names[i];
      EXPECT_TRUE(!comm->wants(agreed.coll) || offered(Job{}, agreed.coll)) << coll_names[i];
    }
    comm->close();
  });
  EXPECT_FALSE(offered(Job{}, Coll::allgather));
  EXPECT_TRUE(offered({.devices = true}, Coll::allgather));
}

TEST(Communicator, OneRankThatCannotTakePartFailsTheCallOnAll) {
  constexpr int nranks = 3;
  FakeBase base(nranks);
  on_all_ranks(nranks, [&](int rank) {
    driven = {{&base, rank}};
    Engine engine(fake_hooks());
    auto comm = Communicator::open(base.of(rank), engine, config);
    ASSERT_TRUE(comm->settle().ok());
    auto send = data_of(rank, 2000, 1);
    std::vector<int64_t> recv(2000, -1);
    Problem problem = sum_of(send, recv);
    if (rank == 1) problem.local.error = Code::no_memory;
    EXPECT_EQ(comm->run(problem), Status(Code::no_memory));
    EXPECT_EQ(recv, std::vector<int64_t>(2000, -1));
    comm->close();
  });
}

TEST(Communicator, ManyInTurnLeakNoSlot) {
  constexpr int nranks = 2;
  constexpr int turns = 1500;  // more than there are slots
  std::vector<std::unique_ptr<FakeBase>> bases;
  for (int i = 0; i < turns; ++i) bases.push_back(std::make_unique<FakeBase>(nranks));
  on_all_ranks(nranks, [&](int rank) {
    Engine engine(fake_hooks());
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
