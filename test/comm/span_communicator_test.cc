// Ranks as threads that take each other for ranks of several nodes: set-up, schedules over the network
// and shared memory, and what becomes of failures. All ranks share this process's network and are told
// apart by their keys.
#include "comm/span_communicator.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "comm/communicator.hpp"
#include "engine/widening.hpp"
#include "fake_base.hpp"

namespace tutti {
namespace {

Config over_nodes() {
  Config made;
  made.net_module = "ucx";
  // Which those that come with tutti leave to the MPI below.
  made.allreduce = "recursive_doubling @ ..8k ppn=1";
  return made;
}
const Config config = over_nodes();

EngineHooks span_hooks() {
  EngineHooks hooks = fake_hooks();
  hooks.single_threaded = false;
  hooks.oversubscribed = true;
  hooks.fail_after_ns = 20'000'000'000;
  return hooks;
}

struct Sum {
  std::vector<int64_t> send, recv;
  Problem problem;

  Sum(int rank, size_t count, int64_t salt) : send(count), recv(count, -1) {
    for (size_t i = 0; i < count; ++i) send[i] = salt * 1000 + rank * 17 + static_cast<int64_t>(i);
    problem.agreed.dtype = Dtype::i64;
    problem.agreed.count = count;
    problem.local.send = send.data();
    problem.local.recv = recv.data();
  }
  void check(int nranks, int64_t salt) const {
    const int64_t n = nranks;
    for (size_t i = 0; i < recv.size(); ++i)
      ASSERT_EQ(recv[i], n * (salt * 1000 + static_cast<int64_t>(i)) + 17 * n * (n - 1) / 2)
          << "element " << i;
  }
};

// Whether the network module is here at all; a build without UCX has none.
bool network_here() {
  static const bool here = [] {
    Quiet quiet;
    return Process::get(config).fabric().open(config, true).ok();
  }();
  return here;
}

class Span : public testing::TestWithParam<std::vector<int32_t>> {
 protected:
  void SetUp() override {
    if (!network_here()) GTEST_SKIP() << "no network module";
  }
  const std::vector<int32_t>& nodes() const { return GetParam(); }
  int nranks() const { return static_cast<int>(nodes().size()); }
  BaseComm base_of(FakeBase& base, int rank) const {
    BaseComm made = base.of(rank);
    made.nodes = nodes();
    return made;
  }
  // body: of each rank, on a communicator whose allreduce goes by the rule where that applies.
  void by_rule(const std::string& rule, const std::function<void(Communicator&, int)>& body) {
    Config ruled = config;
    ruled.allreduce = rule + "; ring";
    FakeBase base(nranks());
    on_all_ranks(nranks(), [&](int rank) {
      driven = {{&base, rank}};
      Engine engine(span_hooks());
      auto comm = Communicator::open(base_of(base, rank), engine, ruled);
      ASSERT_TRUE(comm->settle().ok());
      body(*comm, rank);
      if (HasFatalFailure()) return;
      comm->close();
    });
  }
  Quiet quiet_;
};

Communicator::Below no_below() {
  return {[] {
            ADD_FAILURE() << "went below";
            return Status();
          },
          [] { return Poll::done(); }};
}

TEST_P(Span, ReducesOverNodesBlockingAndNot) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  FakeBase base(nranks());
  on_all_ranks(nranks(), [&](int rank) {
    driven = {{&base, rank}};
    std::mt19937 draw(seed);  // the same on all ranks
    Engine engine(span_hooks());
    auto comm = Communicator::open(base_of(base, rank), engine, config);
    Sum first(rank, 77, 3);
    Request request;
    ASSERT_TRUE(comm->start(first.problem, no_below(), request).ok());
    ASSERT_TRUE(comm->settle().ok());
    for (int64_t salt = 0; salt < 12; ++salt) {
      Sum call(rank, draw() % (salt % 3 == 0 ? 8 : 60000), salt);
      ASSERT_EQ(comm->choose(call.problem.agreed), Path::native) << comm->describe();
      ASSERT_TRUE(comm->run(call.problem).ok());
      call.check(nranks(), salt);
    }
    EXPECT_TRUE(request.done.load());
    first.check(nranks(), 3);
    comm->close();
  });
}

TEST_P(Span, EveryAlgorithmAndInnerWayIsRight) {
  // Levels need a node of several ranks.
  for (const char* rule :
       {"ring", "recursive_doubling", "rabenseifner", "hierarchical,inner=groups,chunk=4k",
        "hierarchical,inner=groups,rails=1", "hierarchical,inner=messages,chunk=64k"}) {
    SCOPED_TRACE(rule);
    by_rule(rule, [&](Communicator& comm, int rank) {
      for (size_t count : {1, 3, 1000, 40000}) {
        Sum call(rank, count, 5);
        ASSERT_TRUE(comm.run(call.problem).ok());
        call.check(nranks(), 5);
        // In place, by its own schedule.
        Sum again(rank, count, 6);
        again.recv = again.send;
        again.problem.local.send = again.recv.data();
        again.problem.local.in_place = true;
        ASSERT_TRUE(comm.run(again.problem).ok());
        again.check(nranks(), 6);
      }
    });
  }
}

// Of small whole numbers, whose partial sums 16 bits do not hold although they hold the result.
TEST_P(Span, SumsOf16BitsKeepPartialSumsAsFp32) {
  for (const char* rule : {"ring", "hierarchical,inner=groups,chunk=4k", "recursive_doubling"}) {
    SCOPED_TRACE(rule);
    by_rule(rule, [&](Communicator& comm, int rank) {
      for (const Dtype dtype : {Dtype::f16, Dtype::bf16})
        for (const bool in_place : {false, true}) {
          // Big values that cancel, and units that bf16 and f16 would lose beside them.
          const float big = rank == 0 ? 4096 : rank == nranks() - 1 ? -4096 : 0;
          std::vector<uint16_t> send(5003, from_f32(dtype, big)), recv(send.size(), 0x7777);
          for (size_t i = 0; i < send.size(); ++i)
            if (rank == static_cast<int>(i) % nranks())
              send[i] = from_f32(dtype, big + (big == 0 ? 1 : 32));
          if (in_place) recv = send;
          Problem problem;
          problem.agreed.dtype = dtype;
          problem.agreed.count = send.size();
          problem.local.send = in_place ? recv.data() : send.data();
          problem.local.recv = recv.data();
          problem.local.in_place = in_place;
          ASSERT_EQ(comm.choose(problem.agreed), Path::native);
          ASSERT_TRUE(comm.run(problem).ok());
          for (size_t i = 0; i < recv.size(); ++i) {
            const int owner = static_cast<int>(i) % nranks();
            const float unit = owner == 0 || owner == nranks() - 1 ? 32 : 1;
            ASSERT_EQ(to_f32(dtype, recv[i]), unit) << name(dtype) << " element " << i;
          }
        }
    });
  }
}

TEST_P(Span, RulesMaySendCallsBelow) {
  Config ruled = config;
  ruled.allreduce = "below @ ..1k; ring";
  FakeBase base(nranks());
  on_all_ranks(nranks(), [&](int rank) {
    driven = {{&base, rank}};
    Engine engine(span_hooks());
    auto comm = Communicator::open(base_of(base, rank), engine, ruled);
    ASSERT_TRUE(comm->settle().ok());
    EXPECT_NE(comm->choose(Sum(rank, 10, 0).problem.agreed), Path::native);
    EXPECT_EQ(comm->choose(Sum(rank, 1000, 0).problem.agreed), Path::native);
    // Not reduced by schedules: padding.
    Agreed agreed = Sum(rank, 1000, 0).problem.agreed;
    agreed.dtype = Dtype::f64_i32;
    agreed.op = Op::minloc;
    EXPECT_NE(comm->choose(agreed), Path::native);
    comm->close();
  });
}

// One rank cannot: nobody does, and all know why.
TEST_P(Span, OneRanksOtherSettingsSendAllBelow) {
  FakeBase base(nranks());
  on_all_ranks(nranks(), [&](int rank) {
    driven = {{&base, rank}};
    Engine engine(span_hooks());
    Config own = config;
    if (rank == nranks() - 1) own.gpu_ctas = 7;
    auto comm = Communicator::open(base_of(base, rank), engine, own);
    ASSERT_TRUE(comm->settle().ok());
    EXPECT_NE(comm->choose(Sum(rank, 10, 0).problem.agreed), Path::native);
    EXPECT_NE(comm->describe().find("settings"), std::string::npos) << comm->describe();
    comm->close();
  });
}

TEST_P(Span, WhatIsRequiredAndMissingIsAnErrorOnAllRanks) {
  Config strict = config;
  strict.require.sharp = true;
  FakeBase base(nranks());
  on_all_ranks(nranks(), [&](int rank) {
    driven = {{&base, rank}};
    Engine engine(span_hooks());
    auto comm = Communicator::open(base_of(base, rank), engine, strict);
    (void)comm->settle();
    Sum call(rank, 10, 0);
    ASSERT_EQ(comm->choose(call.problem.agreed), Path::native);
    EXPECT_FALSE(comm->run(call.problem).ok());
    comm->close();
  });
}

// A rank that never comes: its peers end in time, in this call and every later one.
TEST_P(Span, AMissingRankEndsTheCallOnAllOthers) {
  FakeBase base(nranks());
  std::atomic<int> ended{0};
  on_all_ranks(nranks(), [&](int rank) {
    driven = {{&base, rank}};
    EngineHooks hooks = span_hooks();
    hooks.fail_after_ns = 1'000'000'000;
    Engine engine(hooks);
    auto comm = Communicator::open(base_of(base, rank), engine, config);
    ASSERT_TRUE(comm->settle().ok());
    Sum good(rank, 100, 1);
    ASSERT_TRUE(comm->run(good.problem).ok());
    if (rank != nranks() - 1) {
      for (int again = 0; again < 2; ++again) {
        Sum call(rank, 100, 2);
        EXPECT_FALSE(comm->run(call.problem).ok());
      }
      ++ended;
    }
    while (ended.load() < nranks() - 1) std::this_thread::yield();
    comm->close();
  });
}

// The same before set-up is over: the base may never finish its part.
TEST_P(Span, AMissingRankEndsSetup) {
  auto* base = new FakeBase(nranks());  // its allgather is never complete
  on_all_ranks(nranks() - 1, [&](int rank) {
    driven = {{base, rank}};
    EngineHooks hooks = span_hooks();
    hooks.fail_after_ns = 500'000'000;
    Engine engine(hooks);
    auto comm = Communicator::open(base_of(*base, rank), engine, config);
    EXPECT_FALSE(comm->settle().ok());
    Sum call(rank, 10, 0);
    EXPECT_EQ(comm->choose(call.problem.agreed), Path::native);
    EXPECT_FALSE(comm->run(call.problem).ok());
    comm->close();
    driven.clear();
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, Span,
                         testing::Values(std::vector<int32_t>{0, 1},
                                         std::vector<int32_t>{0, 0, 1, 1},
                                         std::vector<int32_t>{0, 1, 0, 2, 1}),
                         [](const auto& info) {
                           return "Ranks" + std::to_string(info.param.size());
                         });

}  // namespace
}  // namespace tutti
