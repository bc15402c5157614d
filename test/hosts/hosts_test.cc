// One rank of a job over several hosts, without MPI: test/hosts/run starts one such process a rank, in
// the namespaces of its host. The ranks meet in a mapped file: HOSTS_RANK, HOSTS_NRANKS, HOSTS_FILE.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "../engine/trial.hpp"
#include "../pml/processes.hpp"
#include "base/log.hpp"
#include "pml/module.hpp"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string given(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

class Hosts : public testing::Test {
 protected:
  void SetUp() override {
    if (given("HOSTS_FILE").empty()) GTEST_SKIP() << "started by test/hosts/run only";
    const int file = open(given("HOSTS_FILE").c_str(), O_RDWR);
    ASSERT_GE(file, 0) << given("HOSTS_FILE") << ": " << std::strerror(errno);
    void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    ASSERT_NE(memory, MAP_FAILED);
    // All zero is a Shared in its first state.
    process_ =
        std::make_unique<Process>(*static_cast<Shared*>(memory), std::stoi(given("HOSTS_RANK")),
                                  std::stoi(given("HOSTS_NRANKS")));
    Result<const net::Module*> module = net::open_module("ucx");
    ASSERT_TRUE(module.ok());
    Config config;
    config.net_devices = given("HOSTS_DEVICES").empty() ? "eth0" : given("HOSTS_DEVICES");
    Result<net::Network*> network = net::open_network(**module, config, false);
    ASSERT_TRUE(network.ok());
    network_.reset(*network);
    std::vector<net::Address> addresses = process_->exchange(network_->address());
    Transport* made = nullptr;
    std::vector<net::Member> members;
    for (const net::Address& address : addresses)
      members.push_back({address, static_cast<uint32_t>(members.size())});
    ASSERT_TRUE(network_->open(rank(), nranks(), members.data(), &made).ok());
    transport_.reset(made);
  }
  void TearDown() override {
    if (!transport_ || lost_) return;
    barrier();
    transport_.reset();
    EXPECT_TRUE(network_->flush(10'000'000'000).ok());
    process_->barrier([this] { network_->progress(); });
    EXPECT_TRUE(network_->close(10'000'000'000).ok());
  }

  int rank() const { return process_->rank(); }
  int nranks() const { return process_->nranks(); }
  void barrier() {
    process_->barrier([this] { transport_->progress(); });
  }

  std::unique_ptr<Process> process_;
  std::unique_ptr<net::Network> network_;
  std::unique_ptr<Transport> transport_;
  bool lost_ = false;
};

TEST_F(Hosts, EveryAlgorithmGivesTheReference) {
  const std::string seed_text = given("HOSTS_SEED");
  uint64_t draw = std::strtoull(seed_text.c_str(), nullptr, 10), sequence = 0, done = 0;
  const uint64_t stride = given("HOSTS_EVERY").empty() ? 1 : std::stoull(given("HOSTS_EVERY"));
  for (const Algorithm* algorithm : algorithms())
    for (Coll coll : algorithm->collectives)
      for (uint64_t count : {5, 30000}) {
        // Slow machines run every nth case, another each time.
        if (++draw % stride != 0) continue;
        Call call(coll, nranks(), count, draw % 2 == 0 || !reduces(coll), draw);
        const Params params = algorithm->standard_params();
        const Topology topology = trial_topology(nranks(), draw);
        if (!algorithm->applies(call.agreed(), topology, params)) continue;
        SCOPED_TRACE(std::string(algorithm->scheme) + " " + call.describe() + " seed " + seed_text);
        Trial trial(*algorithm, call, params, draw, topology,
                    [&](int r) { return r == rank() ? transport_.get() : nullptr; });
        trial.fill();
        trial.run(rank(), ++sequence);
        trial.check(rank());
        ++done;
        if (HasFailure()) _exit(1);
      }
  EXPECT_GT(done, 0u);
  const std::string found = network_->describe();
  const std::string wanted = given("HOSTS_OVER").empty() ? "tcp/eth0" : given("HOSTS_OVER");
  EXPECT_NE(found.find(wanted), std::string::npos) << "messages went over " << found;
  if (rank() == 0)
    std::printf("%llu calls over %s\n", static_cast<unsigned long long>(done), found.c_str());
}

// The last host is crashed or cut off by test/hosts/run once flag 0 says that all are in the call. All
// others end with an error: those whose network tells them, by that; the rest by the watchdog's abort
// and by the errors that the others send.
TEST_F(Hosts, ALostHostEndsTheCallOnAllOthers) {
  constexpr double watchdog_s = 3, bound_s = 8;
  lost_ = true;
  Topology topology;
  topology.nranks = nranks();
  Call call(Coll::allreduce, nranks(), 50000, true, 1);
  const Algorithm* algorithm = find_algorithm(Coll::allreduce, "recursive_doubling");
  ASSERT_NE(algorithm, nullptr);
  std::vector<Schedule> all = schedules(*algorithm, call, topology, algorithm->standard_params());
  const Schedule& schedule = all[static_cast<size_t>(rank())];
  Guarded in(schedule.input_count * 8), out(schedule.output_count * 8),
      scratch(schedule.scratch_count * 8);
  Executor::Places places;
  places.schedule = &schedule;
  places.transport = transport_.get();
  places.extent_bytes = 8;
  Result<std::unique_ptr<Executor>> made = Executor::open(std::move(places));
  ASSERT_TRUE(made.ok());
  Executor& executor = **made;
  const void* input = schedule.input_count != 0 ? in.data() : out.data();
  // One call that ends well, so that the connections are there.
  executor.bind({input, out.data(), scratch.data(), sum_u64(), 1});
  ASSERT_TRUE(run_operation(executor).status.ok());
  barrier();
  if (rank() == nranks() - 1) {
    process_->flag(0) = 1;
    for (;;) pause();
  }
  while (process_->flag(1) == 0) {
    transport_->progress();
    std::this_thread::yield();
  }
  const Clock::time_point begin = Clock::now();
  executor.bind({input, out.data(), scratch.data(), sum_u64(), 2});
  ASSERT_TRUE(executor.start().ok());
  bool aborted = false;
  std::string missing;
  Poll poll = Poll::busy();
  while (!(poll = executor.poll()).finished()) {
    ASSERT_LT(seconds_since(begin), bound_s) << "waiting for " << executor.waiting_for();
    if (!aborted && seconds_since(begin) > watchdog_s) {
      missing = executor.waiting_for();
      executor.abort(Code::timeout);
      aborted = true;
    }
    std::this_thread::yield();
  }
  EXPECT_FALSE(poll.status().ok()) << "success without the lost host's part";
  std::printf("rank %d ended after %.2f s: %s%s%s\n", rank(), seconds_since(begin),
              poll.status().text(), aborted ? ", after waiting for " : "", missing.c_str());
  transport_.reset();
  const Clock::time_point closing = Clock::now();
  (void)network_->close(1'000'000'000);
  EXPECT_LT(seconds_since(closing), 5.0);
}

}  // namespace
}  // namespace tutti
