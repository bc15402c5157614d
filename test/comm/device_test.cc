// Ring emu: calls of a communicator on emulated device memory, kinds drawn for every rank on its
// own. An emulated device address faults when the CPU touches it, so a path that forgets the kind
// dies.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "comm/communicator.hpp"
#include "comm/host_habit.hpp"
#include "comm/memory.hpp"
#include "comm/process.hpp"
#include "fake_base.hpp"
#include "gpu/emu.hpp"
#include "gpu/module.hpp"

namespace tutti {
namespace {

using gpu::Kind;

constexpr int32_t poison = 0x5c5c5c5c;
constexpr size_t canaries = 16;

Config emulated() {
  Config config;
  config.gpu_module = "emu";
  config.net_module = "ucx";         // for communicators of several nodes
  config.gpu_linger_ns = 5'000'000;  // small calls in a row are rung for, by chance and load
  return config;
}
const Config config = emulated();

// The entries for tests of the module that this process uses.
struct Emu {
  decltype(&tutti_emu_alloc) alloc;
  decltype(&tutti_emu_free) free;
  decltype(&tutti_emu_copy) copy;
  decltype(&tutti_emu_set) set;
  decltype(&tutti_emu_get) get;

  static const Emu& entries() {
    static const Emu emu = [] {
      Dl_info where{};
      dladdr(reinterpret_cast<void*>(gpu::module().query), &where);
      void* handle = dlopen(where.dli_fname, RTLD_NOW | RTLD_NOLOAD);
      Emu found{};
      found.alloc = reinterpret_cast<decltype(found.alloc)>(dlsym(handle, "tutti_emu_alloc"));
      found.free = reinterpret_cast<decltype(found.free)>(dlsym(handle, "tutti_emu_free"));
      found.copy = reinterpret_cast<decltype(found.copy)>(dlsym(handle, "tutti_emu_copy"));
      found.set = reinterpret_cast<decltype(found.set)>(dlsym(handle, "tutti_emu_set"));
      found.get = reinterpret_cast<decltype(found.get)>(dlsym(handle, "tutti_emu_get"));
      return found;
    }();
    return emu;
  }
};

// All ranks' groups take lanes of this one process, and its first group decides how many there are.
class ManyLanes : public testing::Environment {
  void SetUp() override {
    memory::open(config);
    ASSERT_TRUE(gpu::choose("emu").ok());
    ASSERT_EQ(Emu::entries().set("small_lanes", 256), 0);
  }
};
const auto* const many_lanes = testing::AddGlobalTestEnvironment(new ManyLanes);

// Elements of one kind of memory, with canaries behind them.
class Buffer {
 public:
  Buffer(Kind kind, size_t count) : kind_(kind), count_(count) {
    const size_t bytes = (count + canaries) * sizeof(int32_t);
    if (kind == Kind::host)
      memory_ = static_cast<int32_t*>(malloc(bytes));
    else
      memory_ = static_cast<int32_t*>(Emu::entries().alloc(static_cast<int>(kind), 0, bytes));
    write(std::vector<int32_t>(count, poison));
    const std::vector<int32_t> guard(canaries, ~poison);
    put(memory_ + count, guard.data(), canaries);
  }
  ~Buffer() {
    if (kind_ == Kind::host)
      free(memory_);
    else
      Emu::entries().free(memory_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  int32_t* data() const { return memory_; }
  void write(const std::vector<int32_t>& values) { put(memory_, values.data(), values.size()); }
  std::vector<int32_t> read() const {
    std::vector<int32_t> values(count_ + canaries);
    if (kind_ == Kind::host)
      memcpy(values.data(), memory_, values.size() * sizeof(int32_t));
    else
      Emu::entries().copy(values.data(), memory_, values.size() * sizeof(int32_t));
    for (size_t i = count_; i < values.size(); ++i) EXPECT_EQ(values[i], ~poison) << "canary";
    values.resize(count_);
    return values;
  }

 private:
  void put(int32_t* to, const int32_t* from, size_t count) {
    if (kind_ == Kind::host)
      memcpy(to, from, count * sizeof(int32_t));
    else
      Emu::entries().copy(to, from, count * sizeof(int32_t));
  }
  Kind kind_;
  size_t count_;
  int32_t* memory_;
};

struct Case {
  Coll coll = Coll::allreduce;
  Op op = Op::sum;
  uint64_t count = 0;
  int root = 0;
  bool in_place = false;
  uint32_t salt = 0;
};

bool is_rooted(Coll coll) {
  return coll == Coll::bcast || coll == Coll::gather || coll == Coll::scatter ||
         coll == Coll::reduce;
}

int32_t value(const Case& test, int rank, uint64_t i) {
  uint32_t x = test.salt * 7919u + static_cast<uint32_t>(rank) * 104729u + static_cast<uint32_t>(i);
  x = (x ^ x >> 15) * 0x9e3779b9u;
  return static_cast<int32_t>(x >> 16);
}

uint64_t input_count(const Case& test, int nranks) {
  const bool blocks = test.coll == Coll::alltoall || test.coll == Coll::reduce_scatter_block ||
                      test.coll == Coll::scatter;
  return test.count * (blocks ? static_cast<uint64_t>(nranks) : 1);
}

uint64_t output_count(const Case& test, int nranks) {
  const bool blocks =
      test.coll == Coll::alltoall || test.coll == Coll::allgather || test.coll == Coll::gather;
  return test.count * (blocks ? static_cast<uint64_t>(nranks) : 1);
}

int32_t reduced(const Case& test, int nranks, uint64_t i) {
  int32_t result = value(test, 0, i);
  for (int r = 1; r < nranks; ++r) {
    const int32_t x = value(test, r, i);
    result = test.op == Op::sum   ? result + x
             : test.op == Op::min ? std::min(result, x)
                                  : std::max(result, x);
  }
  return result;
}

int32_t expected(const Case& test, int me, int nranks, uint64_t i) {
  const auto rank = static_cast<uint64_t>(me);
  switch (test.coll) {
    case Coll::allgather:
    case Coll::gather:
      return value(test, static_cast<int>(i / test.count), i % test.count);
    case Coll::bcast:
      return value(test, test.root, i);
    case Coll::scatter:
      return value(test, test.root, rank * test.count + i);
    case Coll::alltoall:
      return value(test, static_cast<int>(i / test.count), rank * test.count + i % test.count);
    case Coll::reduce_scatter_block:
      return reduced(test, nranks, rank * test.count + i);
    default:
      return reduced(test, nranks, i);
  }
}

// The buffers that this rank has in a rooted call; elsewhere it has both.
struct Ends {
  bool send = true;
  bool recv = true;
};
Ends ends_of(const Case& test, bool is_root) {
  switch (test.coll) {
    case Coll::bcast:
      return {false, true};
    case Coll::gather:
    case Coll::reduce:
      return {true, is_root};
    case Coll::scatter:
      return {is_root, !(is_root && test.in_place)};
    default:
      return {};
  }
}

void run_case(Communicator& comm, int me, int n, Case test, Kind send_kind, Kind recv_kind) {
  const Ends ends = ends_of(test, me == test.root);
  // In place is a matter of the root, and of no interest to a bcast.
  if (is_rooted(test.coll) && (me != test.root || test.coll == Coll::bcast)) test.in_place = false;
  const uint64_t in = input_count(test, n);
  const uint64_t out = output_count(test, n);
  Buffer send(send_kind, in);
  Buffer recv(recv_kind, std::max(in, out));
  std::vector<int32_t> input(in);
  for (uint64_t i = 0; i < in; ++i) input[i] = value(test, me, i);
  if (test.coll == Coll::bcast) {
    if (me == test.root) recv.write(input);
  } else if (!test.in_place || !ends.recv) {
    send.write(input);
  } else if (test.coll == Coll::allgather || test.coll == Coll::gather) {
    std::vector<int32_t> whole(out, poison);
    std::copy(input.begin(), input.end(), whole.begin() + static_cast<long>(in) * me);
    recv.write(whole);
  } else {
    recv.write(input);
  }
  Problem problem;
  problem.agreed.coll = test.coll;
  problem.agreed.op = test.op;
  problem.agreed.dtype = Dtype::i32;
  problem.agreed.count = test.count;
  problem.agreed.root = test.root;
  if (ends.recv) problem.local.recv = recv.data();
  if (ends.send) problem.local.send = send.data();
  if (ends.recv && test.in_place) problem.local.send = recv.data();
  problem.local.in_place = test.in_place;
  ASSERT_EQ(comm.choose(problem.agreed), Path::native);
  ASSERT_TRUE(comm.run(problem).ok());
  const std::vector<int32_t> got = recv.read();
  for (uint64_t i = 0; i < out && !ends.recv; ++i) ASSERT_EQ(got[i], poison);
  for (uint64_t i = 0; i < out && ends.recv; ++i)
    ASSERT_EQ(got[i], expected(test, me, n, i))
        << name(test.coll) << " element " << i << " rank " << me << " of " << n << " count "
        << test.count << " salt " << test.salt;
}

constexpr Coll colls[] = {
    Coll::allreduce, Coll::allgather, Coll::alltoall, Coll::reduce_scatter_block,
    Coll::bcast,     Coll::gather,    Coll::scatter,  Coll::reduce};
constexpr Op ops[] = {Op::sum, Op::min, Op::max};

// uniform: all ranks have device memory, so kernels do the work where they can.
void sweep(int nranks, int cases, bool uniform) {
  FakeBase base(nranks);
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  on_all_ranks(nranks, [&](int rank) {
    driven = {{&base, rank}};
    Engine engine(fake_hooks());
    auto comm = Communicator::open(base.of(rank), engine, config);
    ASSERT_TRUE(comm->settle().ok());
    std::mt19937 draw(seed);
    std::mt19937 own(seed + 1 + static_cast<unsigned>(rank));
    for (int i = 0; i < cases; ++i) {
      Case test;
      test.salt = static_cast<uint32_t>(i);
      test.coll = colls[draw() % std::size(colls)];
      test.op = ops[draw() % std::size(ops)];
      const uint64_t most[] = {4, 11, 2000, 40000};
      test.count = draw() % most[draw() % 4];
      test.in_place = draw() % 2 == 0;
      if (is_rooted(test.coll))
        test.root = static_cast<int>(draw() % static_cast<unsigned>(nranks));
      const Kind kinds[] = {Kind::host, Kind::managed, Kind::device, Kind::pinned, Kind::device};
      Kind send_kind = uniform ? Kind::device : kinds[own() % 5];
      Kind recv_kind = uniform ? Kind::device : kinds[own() % 5];
      run_case(*comm, rank, nranks, test, send_kind, recv_kind);
      if (testing::Test::HasFatalFailure()) std::abort();  // peers would wait for ever
    }
    comm->close();
  });
}

TEST(DeviceCalls, AllRanksOnTheDevice) {
  for (int nranks : {2, 3, 4}) sweep(nranks, 80, true);
}

TEST(DeviceCalls, AnyMixtureOfKinds) {
  for (int nranks : {2, 3, 5}) sweep(nranks, 120, false);
}

// ---- Communicators of several nodes.

class DevicesOverNodes : public testing::TestWithParam<std::vector<int32_t>> {
 protected:
  void SetUp() override {
    if (!Process::get(config).fabric().open(config, true).ok()) GTEST_SKIP() << "no network module";
  }
  static constexpr const char* rules[] = {
      "ring", "recursive_doubling", "hierarchical,inner=groups,chunk=8k",
      "hierarchical,inner=groups,rails=1", "hierarchical,inner=messages,chunk=16k"};
  int nranks() const { return static_cast<int>(GetParam().size()); }

  // body: of each rank, for each call of each rule; `draw` is the same on all ranks.
  using Body = std::function<void(Communicator&, int rank, std::mt19937& draw, std::mt19937& own)>;
  void each_call(std::span<const char* const> rules, int calls, const Body& body) {
    const unsigned seed = std::random_device{}();
    for (const char* rule : rules) {
      SCOPED_TRACE(text("seed {}, rule {}", seed, rule));
      Config ruled = config;
      ruled.allreduce = text("{}; ring", rule);
      FakeBase base(nranks());
      on_all_ranks(nranks(), [&](int rank) {
        driven = {{&base, rank}};
        EngineHooks hooks = fake_hooks();
        hooks.single_threaded = false;
        hooks.oversubscribed = true;
        hooks.fail_after_ns = 20'000'000'000;
        Engine engine(hooks);
        BaseComm of_rank = base.of(rank);
        of_rank.nodes = GetParam();
        auto comm = Communicator::open(of_rank, engine, ruled);
        ASSERT_TRUE(comm->settle().ok());
        std::mt19937 draw(seed), own(seed + 1 + static_cast<unsigned>(rank));
        for (int i = 0; i < calls; ++i) {
          body(*comm, rank, draw, own);
          if (testing::Test::HasFatalFailure()) std::abort();  // peers would wait for ever
        }
        comm->close();
      });
    }
  }
  Quiet quiet_;
};

TEST_P(DevicesOverNodes, AnyMixtureOfKinds) {
  each_call(rules, 12, [&](Communicator& comm, int rank, std::mt19937& draw, std::mt19937& own) {
    Case test;
    test.salt = static_cast<uint32_t>(draw());
    test.op = ops[draw() % std::size(ops)];
    const uint64_t most[] = {8, 3000, 40000};
    test.count = 1 + draw() % most[draw() % 3];
    test.in_place = draw() % 2 == 0;
    const bool uniform = draw() % 2 == 0;
    const Kind kinds[] = {Kind::host, Kind::managed, Kind::device, Kind::pinned, Kind::device};
    run_case(comm, rank, nranks(), test, uniform ? Kind::device : kinds[own() % 5],
             uniform ? Kind::device : kinds[own() % 5]);
  });
}

TEST_P(DevicesOverNodes, OtherCollectivesToo) {
  constexpr Coll all[] = {Coll::allgather, Coll::alltoall, Coll::reduce_scatter_block,
                          Coll::bcast,     Coll::gather,   Coll::scatter,
                          Coll::reduce};
  each_call(std::span(rules, 1), 40,
            [&](Communicator& comm, int rank, std::mt19937& draw, std::mt19937& own) {
              Case test;
              test.salt = static_cast<uint32_t>(draw());
              test.coll = all[draw() % std::size(all)];
              test.count = 1 + draw() % (draw() % 2 == 0 ? 8 : 9000);
              test.in_place = draw() % 2 == 0;
              if (is_rooted(test.coll))
                test.root = static_cast<int>(draw() % static_cast<unsigned>(nranks()));
              const Kind kinds[] = {Kind::host, Kind::device};
              run_case(comm, rank, nranks(), test, kinds[own() % 2], kinds[own() % 2]);
            });
}

// 16 MiB each, of which the last is short; on some ranks only.
TEST_P(DevicesOverNodes, LongVectorsGoInSegments) {
  each_call(std::span(rules, 1), 3,
            [&](Communicator& comm, int rank, std::mt19937& draw, std::mt19937& own) {
              Case test;
              test.salt = static_cast<uint32_t>(draw());
              const Coll all[] = {Coll::allreduce, Coll::reduce, Coll::bcast};
              test.coll = all[draw() % 3];
              test.count = (4 << 20) * (1 + draw() % 2) + draw() % 3;
              test.in_place = draw() % 2 == 0;
              if (is_rooted(test.coll))
                test.root = static_cast<int>(draw() % static_cast<unsigned>(nranks()));
              const Kind kinds[] = {Kind::host, Kind::device};
              run_case(comm, rank, nranks(), test, kinds[own() % 2], kinds[own() % 2]);
            });
}

// Where all ranks of a node have device buffers, kernels reduce and gather inside it: two group steps a
// chunk on each rank that has company.
TEST_P(DevicesOverNodes, KernelsWorkInsideNodes) {
  constexpr const char* rule[] = {"hierarchical,inner=groups,chunk=8k"};
  std::map<int32_t, int> sizes;
  for (int32_t node : GetParam()) ++sizes[node];
  const auto [least, most] = std::minmax_element(
      sizes.begin(), sizes.end(), [](auto& a, auto& b) { return a.second < b.second; });
  // Slices are cut for the smallest node; members without a slice make blocks uneven.
  if (least->second != most->second || least->second == 1)
    GTEST_SKIP() << "no node of several ranks, or nodes of different sizes";
  // Of 2048 elements, or 2046 for three slices. What is left goes through shared memory.
  for (uint64_t count : {30000, 30001}) {
    const long before = Emu::entries().get("started");
    each_call(rule, 1, [&](Communicator& comm, int rank, std::mt19937&, std::mt19937&) {
      Case test;
      test.count = count;
      run_case(comm, rank, nranks(), test, Kind::device, Kind::device);
    });
    EXPECT_EQ(Emu::entries().get("started") - before, 2 * 15 * nranks()) << count;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, DevicesOverNodes,
                         testing::Values(std::vector<int32_t>{0, 1},
                                         std::vector<int32_t>{0, 0, 1, 1},
                                         std::vector<int32_t>{0, 1, 0, 2, 1},
                                         std::vector<int32_t>{0, 1, 1, 0, 0, 1}),
                         [](const auto& info) {
                           std::string name = "Nodes";
                           for (int32_t node : info.param) name += std::to_string(node);
                           return name;
                         });

// Rooted calls on host memory alone end up below, on all ranks at the same call, and come back with the
// first probe that meets a device buffer, of whichever rank.
TEST(DeviceCalls, RootedCallsOnHostMemoryGoBelowUntilADeviceBufferComes) {
  constexpr int nranks = 3;
  constexpr int calls = 400;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::vector<std::vector<bool>> below(nranks, std::vector<bool>(calls));
  FakeBase base(nranks);
  on_all_ranks(nranks, [&](int rank) {
    driven = {{&base, rank}};
    Engine engine(fake_hooks());
    auto comm = Communicator::open(base.of(rank), engine, config);
    ASSERT_TRUE(comm->settle().ok());
    std::mt19937 draw(seed);
    for (int i = 0; i < calls; ++i) {
      Case test;
      test.coll = Coll::bcast;
      test.count = 100;
      test.salt = static_cast<uint32_t>(i);
      const auto odd = static_cast<int>(draw() % nranks);
      const bool device = i >= calls / 2 && i < calls * 3 / 4;
      Agreed agreed;
      agreed.coll = test.coll;
      agreed.dtype = Dtype::i32;
      agreed.count = test.count;
      const Path path = comm->choose_blocking(agreed);
      below[static_cast<size_t>(rank)][static_cast<size_t>(i)] = path != Path::native;
      if (path != Path::native) continue;
      run_case(*comm, rank, nranks, test, Kind::host,
               device && rank == odd ? Kind::device : Kind::host);
      if (testing::Test::HasFatalFailure()) std::abort();  // peers would wait for ever
    }
    comm->close();
  });
  for (int rank = 1; rank < nranks; ++rank)
    EXPECT_EQ(below[static_cast<size_t>(rank)], below[0]) << "rank " << rank;
  const auto share = [&](int from, int to) {
    return std::count(below[0].begin() + from, below[0].begin() + to, true) * 100 / (to - from);
  };
  EXPECT_GE(share(0, calls / 2), 90);
  EXPECT_LE(share(calls / 2 + HostHabit::probe_period, calls * 3 / 4), 0);
  EXPECT_GE(share(calls * 3 / 4, calls), 80);
}

TEST(DeviceCalls, PendingOnTwoCommunicatorsInOppositeOrder) {
  constexpr int nranks = 2;
  FakeBase a(nranks);
  FakeBase b(nranks);
  on_all_ranks(nranks, [&](int rank) {
    driven = {{&a, rank}, {&b, rank}};
    Engine engine(fake_hooks());
    std::unique_ptr<Communicator> comms[2] = {Communicator::open(a.of(rank), engine, config),
                                              Communicator::open(b.of(rank), engine, config)};
    for (auto& comm : comms) ASSERT_TRUE(comm->settle().ok());
    for (int turn = 0; turn < 20; ++turn) {
      constexpr size_t count = 5000;
      Request requests[2];
      std::unique_ptr<Buffer> buffers[2];
      for (int k = 0; k < 2; ++k) {
        const int which = rank == 0 ? k : 1 - k;
        buffers[which] = std::make_unique<Buffer>(Kind::device, count);
        buffers[which]->write(std::vector<int32_t>(count, turn + 10 * which + rank));
        Problem problem;
        problem.agreed.dtype = Dtype::i32;
        problem.agreed.count = count;
        problem.local.send = buffers[which]->data();
        problem.local.recv = buffers[which]->data();
        problem.local.in_place = true;
        ASSERT_TRUE(comms[which]->start(problem, {}, requests[which]).ok());
      }
      for (int which : {1, 0}) ASSERT_TRUE(engine.wait(requests[which]).ok());
      for (int which : {0, 1})
        EXPECT_EQ(buffers[which]->read(), std::vector<int32_t>(count, 2 * (turn + 10 * which) + 1));
    }
    for (auto& comm : comms) comm->close();
  });
}

TEST(DeviceCalls, ARefusedLaneSendsAllRanksThroughSharedMemory) {
  const log::Level before = log::threshold.exchange(log::Level::off);
  const uint64_t warnings = log::count(log::Level::warn);
  ASSERT_EQ(Emu::entries().set("small_lanes", 0), 0);
  // More communicators than there are lanes: the later ones have no kernels, and are right.
  constexpr int nranks = 2;
  constexpr int ncomms = 7;
  std::vector<std::unique_ptr<FakeBase>> bases;
  for (int i = 0; i < ncomms; ++i) bases.push_back(std::make_unique<FakeBase>(nranks));
  on_all_ranks(nranks, [&](int rank) {
    Engine engine(fake_hooks());
    std::vector<std::unique_ptr<Communicator>> comms;
    for (auto& base : bases) {
      driven = {{base.get(), rank}};
      comms.push_back(Communicator::open(base->of(rank), engine, config));
      ASSERT_TRUE(comms.back()->settle().ok());
      Case test;
      test.count = 3000;
      run_case(*comms.back(), rank, nranks, test, Kind::device, Kind::device);
    }
    for (auto& comm : comms) comm->close();
  });
  log::threshold.store(before);
  EXPECT_EQ(log::count(log::Level::warn), warnings) << "nothing is logged below the threshold";
}

TEST(DeviceCalls, RequiredPeerAccessTurnsTheFallbackIntoAnErrorOnAllRanks) {
  const log::Level before = log::threshold.exchange(log::Level::off);
  constexpr int nranks = 2;
  FakeBase base(nranks);
  Config strict = emulated();
  strict.gpu_no_peer = true;
  strict.require.p2p = true;
  on_all_ranks(nranks, [&](int rank) {
    driven = {{&base, rank}};
    Engine engine(fake_hooks());
    auto comm = Communicator::open(base.of(rank), engine, strict);
    ASSERT_TRUE(comm->settle().ok());
    Buffer buffer(Kind::device, 100);
    Problem problem;
    problem.agreed.dtype = Dtype::i32;
    problem.agreed.count = 100;
    problem.local.send = buffer.data();
    problem.local.recv = buffer.data();
    problem.local.in_place = true;
    for (int i = 0; i < 2; ++i) EXPECT_FALSE(comm->run(problem).ok());
    comm->close();
  });
  log::threshold.store(before);
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!tutti::gpu::choose("emu").ok()) return 1;
  return RUN_ALL_TESTS();
}
