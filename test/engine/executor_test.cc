#include "engine/executor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "allocations.hpp"
#include "guarded.hpp"
#include "pml/loopback.hpp"
#include "ranks.hpp"

namespace tutti {
namespace {

using Id = ScheduleBuilder::Id;

Ref input(uint64_t offset, uint64_t count) {
  return {Space::input, offset, count};
}
Ref output(uint64_t offset, uint64_t count) {
  return {Space::output, offset, count};
}

// Hand-written schedules, small enough to be read: the registered algorithms have their own test.

// Prefix over a chain, in pieces of one element: rank r adds its part behind what came from r - 1.
Schedule scan_chain(int rank, int nranks, uint64_t n) {
  Schedule schedule;
  schedule.input_count = schedule.output_count = n;
  ScheduleBuilder builder(schedule, rank, nranks);
  Ref theirs = builder.scratch(n);
  for (uint64_t i = 0; i < n; ++i) {
    Id last;
    const uint32_t tag = static_cast<uint32_t>(i);
    if (rank == 0) {
      last = builder.copy(input(i, 1), output(i, 1), {});
    } else {
      Id got = builder.recv(rank - 1, {Space::scratch, theirs.offset + i, 1}, {}, tag);
      last =
          builder.reduce({Space::scratch, theirs.offset + i, 1}, input(i, 1), output(i, 1), {got});
    }
    if (rank + 1 < nranks) builder.send(rank + 1, output(i, 1), {last}, tag);
  }
  return schedule;
}

// Everybody sends its vector to everybody, and reduces all of them in rank order.
Schedule allreduce_full(int rank, int nranks, uint64_t n) {
  Schedule schedule;
  schedule.input_count = schedule.output_count = n;
  ScheduleBuilder builder(schedule, rank, nranks);
  std::vector<Ref> parts(static_cast<size_t>(nranks));
  std::vector<Id> got(static_cast<size_t>(nranks), ScheduleBuilder::none);
  for (size_t peer = 0; peer < parts.size(); ++peer) {
    parts[peer] = builder.scratch(n);
    if (static_cast<int>(peer) == rank) {
      got[peer] = builder.copy(input(0, n), parts[peer], {});
    } else {
      builder.send(static_cast<int>(peer), input(0, n), {});
      got[peer] = builder.recv(static_cast<int>(peer), parts[peer], {});
    }
  }
  Id last = builder.copy(parts[0], output(0, n), {got[0]});
  for (size_t peer = 1; peer < parts.size(); ++peer)
    last = builder.reduce(output(0, n), parts[peer], output(0, n), {last, got[peer]});
  return schedule;
}

// One rank's executor with its memory.
class Rank {
 public:
  Rank(Schedule schedule, Transport* transport, GroupRunner* groups = nullptr)
      : schedule_(std::move(schedule)),
        in(schedule_.input_count * 8),
        out(schedule_.output_count * 8),
        scratch(schedule_.scratch_count * 8) {
    Result<std::unique_ptr<Executor>> made = Executor::open({.schedule = &schedule_,
                                                             .transport = transport,
                                                             .groups = groups,
                                                             .extent_bytes = 8,
                                                             .rank_text = {}});
    if (made.ok()) executor_ = std::move(*made);
  }
  Executor& bind(uint64_t sequence, Reduction reduction = composition()) {
    executor_->bind({in.data(), out.data(), scratch.data(), reduction, sequence});
    return *executor_;
  }
  void fill(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (size_t i = 0; i < in.bytes() / 8; ++i) {
      uint64_t value = random();
      std::memcpy(in.data() + 8 * i, &value, 8);
    }
  }
  uint64_t input_at(size_t i) const { return at(in, i); }
  uint64_t output_at(size_t i) const { return at(out, i); }
  bool intact() const { return in.intact() && out.intact() && scratch.intact(); }

 private:
  static uint64_t at(const Guarded& memory, size_t i) {
    uint64_t value;
    std::memcpy(&value, memory.data() + 8 * i, 8);
    return value;
  }
  Schedule schedule_;
  std::unique_ptr<Executor> executor_;

 public:
  Guarded in, out, scratch;
};

using Ranks = std::vector<std::unique_ptr<Rank>>;

Ranks make_ranks(Loopback& loopback, int nranks, uint64_t n, Schedule (*make)(int, int, uint64_t)) {
  Ranks ranks;
  for (int rank = 0; rank < nranks; ++rank)
    ranks.push_back(std::make_unique<Rank>(make(rank, nranks, n), &loopback.transport(rank)));
  return ranks;
}

uint64_t reference(const Ranks& ranks, size_t last, size_t i) {
  uint64_t value = ranks[0]->input_at(i);
  for (size_t rank = 1; rank <= last; ++rank) value = compose(value, ranks[rank]->input_at(i));
  return value;
}

TEST(Executor, RunsOneScheduleCallAfterCall) {
  for (int nranks : {1, 2, 3, 7}) {
    Loopback loopback(nranks, {.seed = test_seed(), .eager_bytes = 8, .eager_total_bytes = 24});
    Ranks ranks = make_ranks(loopback, nranks, 13, scan_chain);
    for (uint64_t call = 1; call <= 300; ++call) {
      run_ranks(nranks, [&](int rank) {
        Rank& mine = *ranks[static_cast<size_t>(rank)];
        mine.fill(test_seed() + call * 64 + static_cast<uint64_t>(rank));
        Ended ended = run_operation(mine.bind(call));
        EXPECT_TRUE(ended.status.ok()) << ended.status.text();
      });
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        ASSERT_TRUE(ranks[rank]->intact());
        for (size_t i = 0; i < 13; ++i)
          ASSERT_EQ(ranks[rank]->output_at(i), reference(ranks, rank, i))
              << "call " << call << " rank " << rank << " element " << i;
      }
    }
    EXPECT_EQ(loopback.unmatched(), 0u);
  }
}

TEST(Executor, CallsOfRanksMayOverlap) {
  // No barrier between the calls: a fast rank is a call ahead, and its messages must wait.
  constexpr int nranks = 4;
  Loopback loopback(nranks, {.seed = test_seed() + 1});
  Ranks ranks = make_ranks(loopback, nranks, 5, allreduce_full);
  for (auto& rank : ranks) rank->fill(test_seed());
  run_ranks(nranks, [&](int rank) {
    Rank& mine = *ranks[static_cast<size_t>(rank)];
    for (uint64_t call = 1; call <= 600; ++call) {
      std::memset(mine.out.data(), 0, mine.out.bytes());
      ASSERT_TRUE(run_operation(mine.bind(call)).status.ok());
      for (size_t i = 0; i < 5; ++i) ASSERT_EQ(mine.output_at(i), reference(ranks, nranks - 1, i));
    }
  });
  EXPECT_EQ(loopback.unmatched(), 0u);
}

TEST(Executor, AnEmptyScheduleEndsAtOnce) {
  Schedule schedule;
  Result<std::unique_ptr<Executor>> executor = Executor::open({.schedule = &schedule});
  ASSERT_TRUE(executor.ok());
  EXPECT_TRUE(run_operation(**executor, 1).finished);
  EXPECT_EQ((*executor)->waiting_for(), "");
}

TEST(Executor, ATruncatedMessageEndsTheCallAndNotTheNext) {
  constexpr int nranks = 4;
  for (uint64_t nth = 0; nth < 8; ++nth) {
    Loopback loopback(nranks, {.seed = test_seed() + nth, .eager_bytes = 8});
    Ranks ranks = make_ranks(loopback, nranks, 8, scan_chain);
    loopback.plant_truncation(1, 2, nth);
    std::vector<Status> ends(nranks);
    run_ranks(nranks, [&](int rank) {
      Rank& mine = *ranks[static_cast<size_t>(rank)];
      mine.fill(static_cast<uint64_t>(rank));
      ends[static_cast<size_t>(rank)] = run_operation(mine.bind(1)).status;
    });
    EXPECT_TRUE(ends[0].ok());
    EXPECT_TRUE(ends[1].ok());
    EXPECT_EQ(ends[2], Code::truncated);
    EXPECT_EQ(ends[3], Code::truncated) << "rank 3 got a part that rank 2 never had";
    EXPECT_EQ(loopback.unmatched(), 0u) << "a message was left for a later call";
    run_ranks(nranks, [&](int rank) {
      EXPECT_TRUE(run_operation(ranks[static_cast<size_t>(rank)]->bind(2)).status.ok());
    });
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(ranks[3]->output_at(i), reference(ranks, 3, i));
  }
}

TEST(Executor, ADeadPeerEndsTheCallOnEverySurvivor) {
  constexpr int nranks = 5;
  for (uint64_t nth = 0; nth < 4; ++nth) {
    for (size_t eager_bytes : {0, 64}) {
      Loopback loopback(nranks, {.seed = test_seed() + nth, .eager_bytes = eager_bytes});
      Ranks ranks = make_ranks(loopback, nranks, 3, allreduce_full);
      loopback.plant_death(2, nth);
      std::vector<Status> ends(nranks);
      run_ranks(nranks, [&](int rank) {
        ends[static_cast<size_t>(rank)] =
            run_operation(ranks[static_cast<size_t>(rank)]->bind(1)).status;
      });
      // The dead rank's first nth messages left before it died, so those peers may have all.
      size_t failed = 0;
      for (size_t rank = 0; rank < nranks; ++rank) {
        if (ends[rank].ok()) continue;
        ++failed;
        EXPECT_EQ(ends[rank], Code::peer_lost);
      }
      EXPECT_GE(failed, nranks - nth);
      EXPECT_TRUE(std::ranges::all_of(ranks, [](auto& rank) { return rank->intact(); }));
    }
  }
}

// Copies that end when they are told to.
class SlowCopies final : public CopyRunner {
 public:
  Status start(void*, const void*, size_t, uint64_t* handle) override {
    if (refuses) return Code::no_resource;
    *handle = under_way++;
    return {};
  }
  Poll poll(uint64_t) override {
    if (!ends) return Poll::busy();
    --under_way;
    return Poll::done();
  }
  bool refuses = false, ends = false;
  uint64_t under_way = 0;
};

// One copy from the device, and a message that waits for it.
TEST(Executor, CopiesUnderWayOutliveAnAbortAndARefusedOneEndsTheCallOnBothRanks) {
  Loopback loopback(2, {.seed = test_seed()});
  uint64_t device[2] = {}, host[2] = {}, scratch[2] = {};
  Schedule schedules[2];
  SlowCopies copies;
  std::unique_ptr<Executor> executors[2];
  for (int rank : {0, 1}) {
    Schedule& s = schedules[rank];
    s.input_count = s.output_count = 1;
    ScheduleBuilder b(s, rank, 2);
    const Ref room = b.scratch(1);
    if (rank == 0)
      b.send(1, room, {b.copy(input(0, 1), room, {})});
    else
      b.recv(0, output(0, 1), {});
    Executor::Places places;
    places.schedule = &s;
    places.transport = &loopback.transport(rank);
    places.extent_bytes = 8;
    auto executor = Executor::open(std::move(places));
    ASSERT_TRUE(executor.ok());
    executors[rank] = std::move(*executor);
  }
  for (bool refuses : {false, true}) {
    copies = {};
    copies.refuses = refuses;
    for (int rank : {0, 1}) {
      ExecutorCall call{&device[rank], &host[rank], &scratch[rank], sum_u64(), refuses ? 2u : 1u};
      call.copies = &copies;
      call.input_on_device = rank == 0;
      executors[rank]->bind(call);
      ASSERT_TRUE(executors[rank]->start().ok());
    }
    EXPECT_EQ(executors[0]->poll().finished(), refuses);
    if (!refuses) {
      EXPECT_EQ(executors[0]->waiting_for(), "the device");
      executors[0]->abort(Code::timeout);
      EXPECT_FALSE(executors[0]->poll().finished()) << "a copy still writes";
      copies.ends = true;
      const Poll end = executors[0]->poll();
      ASSERT_TRUE(end.finished());
      EXPECT_EQ(end.status(), Status(Code::timeout));
    }
    EXPECT_EQ(copies.under_way, 0u);
    Ended peer;
    for (int turn = 0; turn < 1000 && !peer.finished; ++turn) {
      loopback.transport(0).progress();
      peer = poll_operation(*executors[1], 1);
    }
    ASSERT_TRUE(peer.finished);
    EXPECT_EQ(peer.status, Status(refuses ? Code::no_resource : Code::timeout));
  }
}

TEST(Executor, AbortWithdrawsFromAPeerThatNeverComes) {
  constexpr int nranks = 4;
  Loopback loopback(nranks, {.seed = test_seed(), .eager_bytes = 0});
  Ranks ranks = make_ranks(loopback, nranks, 6, scan_chain);
  for (size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank]->fill(rank);
  // Rank 1 stays away. Rank 0 waits in its sends, rank 2 in its receives; rank 3 waits for rank 2.
  std::vector<std::string> missing(nranks);
  std::vector<Ended> ends(nranks);
  run_ranks(nranks, [&](int rank) {
    if (rank == 1) return;
    const size_t r = static_cast<size_t>(rank);
    Executor& executor = ranks[r]->bind(1);
    ends[r] = run_operation(executor, rank == 3 ? ~uint64_t{0} : 500);
    missing[r] = executor.waiting_for();
    if (rank == 3) return;  // ended by the errors that rank 2 sends
    EXPECT_FALSE(ends[r].finished);
    executor.abort(Code::timeout);
    executor.abort(Code::internal);  // the watchdog may call again
    ends[r] = poll_operation(executor, 1);
    std::memset(ranks[r]->out.data(), 0x11, ranks[r]->out.bytes());
    std::memset(ranks[r]->scratch.data(), 0x11, ranks[r]->scratch.bytes());
  });
  EXPECT_EQ(missing[0], "rank 1");
  EXPECT_EQ(missing[2], "rank 1");
  for (size_t rank : {0u, 2u, 3u}) {
    EXPECT_TRUE(ends[rank].finished);
    EXPECT_EQ(ends[rank].status, Code::timeout);
  }
  EXPECT_EQ(loopback.unmatched(), 6u) << "one error for each message that rank 1 waits for";
  // It comes late, after the others have gone: it learns that, and nothing it says disturbs them.
  Executor& late = ranks[1]->bind(1);
  Ended end = run_operation(late, 1);
  for (int turn = 0; turn < 1000 && !end.finished; ++turn) {
    for (int rank : {0, 2, 3}) loopback.transport(rank).progress();
    end = poll_operation(late, 1);
  }
  EXPECT_TRUE(end.finished);
  EXPECT_EQ(end.status, Code::timeout);
  for (size_t rank : {0u, 2u}) {
    for (const Guarded* memory : {&ranks[rank]->out, &ranks[rank]->scratch})
      EXPECT_TRUE(std::all_of(memory->data(), memory->data() + memory->bytes(),
                              [](unsigned char c) { return c == 0x11; }));
  }
  run_ranks(nranks, [&](int rank) {
    EXPECT_TRUE(run_operation(ranks[static_cast<size_t>(rank)]->bind(2)).status.ok());
  });
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(ranks[3]->output_at(i), reference(ranks, 3, i));
}

// A group of threads that sums one element of each member, as a kernel or the board would do it:
// no member's operation finishes before all have started.
class SharedSum final : public GroupRunner {
 public:
  struct State {
    explicit State(int members) : nmembers(members), parts(static_cast<size_t>(members)) {}
    const int nmembers;
    std::vector<std::atomic<uint64_t>> parts;
    std::atomic<int> arrived{0};
    std::atomic<int> code{0};
  };
  SharedSum(State& state, int member) : operation_(state, member) {}

  Result<Operation*> prepare(uint32_t number, const Step& step, const Group&, const void* from,
                             void* to) override {
    numbers.push_back(number);
    EXPECT_EQ(step.kind, StepKind::group);
    operation_.from = from;
    operation_.to = to;
    return &operation_;
  }
  std::vector<uint32_t> numbers;
  int aborts() const { return operation_.aborts; }

 private:
  struct Sum final : Operation {
    Sum(State& shared, int me) : state(shared), member(me) {}
    Status start() override {
      uint64_t value;
      std::memcpy(&value, from, 8);
      state.parts[static_cast<size_t>(member)] = value;
      ++state.arrived;
      looks = 0;
      return {};
    }
    Poll poll() override {
      if (++looks < 20) return Poll::busy();
      const bool all_here = state.arrived == state.nmembers;
      if (state.code != 0) return Poll::failed(static_cast<Code>(state.code.load()));
      if (!all_here) return Poll::busy();
      uint64_t sum = 0;
      for (auto& part : state.parts) sum += part;
      std::memcpy(to, &sum, 8);
      return Poll::done();
    }
    void abort(Status why) override {
      ++aborts;
      state.code = static_cast<int>(why.code());
    }
    const char* phase() const override { return "sum"; }
    std::string waiting_for() const override { return "a member"; }
    State& state;
    int member;
    const void* from = nullptr;
    void* to = nullptr;
    int looks = 0;
    int aborts = 0;
  } operation_;
};

// Pairs (0,1), (2,3): a message to the neighbour, the group's sum of what came, a copy behind it.
Schedule exchange_then_group(int rank, int nranks, uint64_t) {
  Schedule schedule;
  schedule.input_count = schedule.output_count = 1;
  ScheduleBuilder builder(schedule, rank, nranks);
  Ref got = builder.scratch(1), sum = builder.scratch(1);
  builder.send(rank ^ 1, input(0, 1), {});
  Id received = builder.recv(rank ^ 1, got, {});
  Group group;
  for (int member = 0; member < nranks; ++member) group.members.push_back(member);
  const Id before[] = {received};
  Id summed = builder.group(group, got, sum, before);
  builder.copy(sum, output(0, 1), {summed});
  return schedule;
}

TEST(Executor, GroupStepsStartWhenTheirInputsAreThere) {
  constexpr int nranks = 4;
  Loopback loopback(nranks, {.seed = test_seed(), .eager_bytes = 0});
  SharedSum::State state(nranks);
  uint64_t sum = 0;
  std::vector<std::unique_ptr<SharedSum>> groups;
  Ranks ranks;
  for (int rank = 0; rank < nranks; ++rank) {
    groups.push_back(std::make_unique<SharedSum>(state, rank));
    ranks.push_back(std::make_unique<Rank>(exchange_then_group(rank, nranks, 1),
                                           &loopback.transport(rank), groups.back().get()));
    ranks.back()->fill(test_seed() + static_cast<uint64_t>(rank));
    sum += ranks.back()->input_at(0);
  }
  run_ranks(nranks, [&](int rank) {
    EXPECT_TRUE(run_operation(ranks[static_cast<size_t>(rank)]->bind(1)).status.ok());
  });
  for (auto& rank : ranks) EXPECT_EQ(rank->output_at(0), sum);
  EXPECT_EQ(groups[0]->numbers, std::vector<uint32_t>{2});
}

TEST(Executor, AFailureBeforeAGroupReachesItsMembers) {
  constexpr int nranks = 4;
  Loopback loopback(nranks, {.seed = test_seed(), .eager_bytes = 0});
  SharedSum::State state(nranks);
  loopback.plant_truncation(2, 3, 0);
  std::vector<std::unique_ptr<SharedSum>> groups;
  Ranks ranks;
  for (int rank = 0; rank < nranks; ++rank) {
    groups.push_back(std::make_unique<SharedSum>(state, rank));
    ranks.push_back(std::make_unique<Rank>(exchange_then_group(rank, nranks, 1),
                                           &loopback.transport(rank), groups.back().get()));
  }
  run_ranks(nranks, [&](int rank) {
    EXPECT_EQ(run_operation(ranks[static_cast<size_t>(rank)]->bind(1)).status, Code::truncated);
  });
}

TEST(Executor, AbortEndsAGroupThatWaits) {
  Loopback loopback(4, {.seed = test_seed()});
  SharedSum::State states[] = {SharedSum::State(4), SharedSum::State(4)};  // else one ends both
  std::vector<std::unique_ptr<SharedSum>> groups;
  Ranks ranks;
  for (int rank = 0; rank < 2; ++rank) {
    groups.push_back(std::make_unique<SharedSum>(states[rank], rank));
    ranks.push_back(std::make_unique<Rank>(exchange_then_group(rank, 4, 1),
                                           &loopback.transport(rank), groups.back().get()));
  }
  run_ranks(2, [&](int rank) {
    Executor& executor = ranks[static_cast<size_t>(rank)]->bind(1);
    EXPECT_FALSE(run_operation(executor, 500).finished);
    // The other rank's message may take longer to come where threads outnumber cores.
    for (int i = 0; i < 20000 && executor.waiting_for() != "a member"; ++i) {
      std::this_thread::yield();
      ASSERT_FALSE(poll_operation(executor, 10).finished);
    }
    EXPECT_EQ(executor.waiting_for(), "a member");
    EXPECT_STREQ(executor.phase(), "sum");
    executor.abort(Code::timeout);
    executor.abort(Code::timeout);
    Ended ended = poll_operation(executor, 100);
    EXPECT_TRUE(ended.finished);
    EXPECT_EQ(ended.status, Code::timeout);
    EXPECT_EQ(groups[static_cast<size_t>(rank)]->aborts(), 1);
  });
  EXPECT_EQ(loopback.unmatched(), 0u);
}

// A transport that is out of room for sends.
class Full final : public Transport {
 public:
  int rank() const override { return 0; }
  int nranks() const override { return 3; }
  Result<Handle> send(int, uint64_t, const void*, size_t) override { return Code::no_resource; }
  Result<Handle> recv(int, uint64_t, void*, size_t) override { return 1; }
  void send_error(int peer, uint64_t, Status why) override { told.emplace_back(peer, why); }
  Poll test(Handle) override { return Poll::done(); }
  void progress() override {}
  bool cancel(Handle) override { return true; }
  std::vector<std::pair<int, Status>> told;
};

TEST(Executor, APeerLearnsOfASendThatIsRefused) {
  Full full;
  Rank rank(allreduce_full(0, 3, 1), &full);
  EXPECT_EQ(run_operation(rank.bind(1), 10).status, Code::no_resource);
  ASSERT_EQ(full.told.size(), 2u);
  for (int peer : {1, 2}) {
    EXPECT_EQ(full.told[static_cast<size_t>(peer - 1)].first, peer);
    EXPECT_EQ(full.told[static_cast<size_t>(peer - 1)].second, Code::no_resource);
  }
}

// A peer that answers everything on the third look, and allocates nothing.
class Mirror final : public Transport {
 public:
  int rank() const override { return 1; }
  int nranks() const override { return 3; }
  Result<Handle> send(int, uint64_t, const void*, size_t) override { return 3; }
  Result<Handle> recv(int, uint64_t, void*, size_t) override { return 3; }
  void send_error(int, uint64_t, Status) override {}
  Poll test(Handle) override { return looks_++ % 3 == 2 ? Poll::done() : Poll::busy(); }
  void progress() override {}
  bool cancel(Handle) override { return true; }

 private:
  uint64_t looks_ = 0;
};

TEST(Executor, AllocatesNothingOnceMade) {
  if (!counts_allocations) GTEST_SKIP() << "a sanitizer owns operator new";
  Mirror mirror;
  for (auto make : {scan_chain, allreduce_full}) {
    Rank rank(make(1, 3, 50), &mirror);
    const uint64_t before = allocations_of_this_thread();
    for (uint64_t call = 1; call < 20; ++call)
      ASSERT_TRUE(run_operation(rank.bind(call)).status.ok());
    Executor& executor = rank.bind(20);
    ASSERT_FALSE(run_operation(executor, 2).finished);
    executor.abort(Code::timeout);
    EXPECT_EQ(allocations_of_this_thread(), before);
  }
}

TEST(Executor, RefusesWhatDoesNotHangTogether) {
  Loopback loopback(2, {});
  auto refused = [&](auto&& spoil) {
    Schedule schedule = allreduce_full(0, 2, 4);
    spoil(schedule);
    return Executor::open({.schedule = &schedule, .transport = &loopback.transport(0)}).status() ==
           Code::internal;
  };
  auto step_of = [](Schedule& schedule, StepKind kind) -> Step& {
    return *std::ranges::find(schedule.steps, kind, &Step::kind);
  };
  EXPECT_FALSE(refused([](Schedule&) {}));
  EXPECT_TRUE(refused([&](Schedule& s) { step_of(s, StepKind::send).peer = 2; }));
  EXPECT_TRUE(refused([&](Schedule& s) { step_of(s, StepKind::send).peer = 0; }));
  EXPECT_TRUE(refused([&](Schedule& s) { step_of(s, StepKind::recv).peer = -1; }));
  EXPECT_TRUE(refused([&](Schedule& s) { step_of(s, StepKind::recv).tag = 1u << 20; }));
  EXPECT_TRUE(refused([&](Schedule& s) { step_of(s, StepKind::recv).to.count = 100; }));
  EXPECT_TRUE(refused([&](Schedule& s) { step_of(s, StepKind::send).from.offset = ~0ull; }));
  EXPECT_TRUE(refused([&](Schedule& s) { step_of(s, StepKind::copy).to.space = Space::input; }));
  EXPECT_TRUE(refused([&](Schedule& s) { step_of(s, StepKind::copy).to.count = 3; }));
  EXPECT_TRUE(refused([&](Schedule& s) { step_of(s, StepKind::reduce).with.count = 3; }));
  EXPECT_TRUE(refused([&](Schedule& s) { step_of(s, StepKind::reduce).after_count = 100; }));
  EXPECT_TRUE(refused([&](Schedule& s) { s.after.back() = 1000; }));
  EXPECT_TRUE(refused([&](Schedule& s) { step_of(s, StepKind::copy).kind = StepKind::group; }));
}

}  // namespace
}  // namespace tutti
