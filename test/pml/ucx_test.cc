// The UCX module between processes of this machine: no MPI, addresses travel through shared memory.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "../engine/trial.hpp"
#include "pml/module.hpp"
#include "processes.hpp"

namespace tutti {
namespace {

using Seconds = std::chrono::duration<double>;

// One process's network with a transport, closed at the end as MPI_Finalize would close it.
class Joined {
 public:
  explicit Joined(Process& process, uint32_t key = 5) : process_(process) {
    Result<const net::Module*> module = net::open_module("ucx");
    if (!module.ok()) return;
    Result<net::Network*> network = net::open_network(**module, Config{}, true);
    if (!network.ok()) return;
    network_.reset(*network);
    addresses_ = process.exchange(network_->address());
    transport_ = open(key);
  }
  ~Joined() {
    if (!network_) return;
    barrier();
    transport_.reset();
    EXPECT_TRUE(network_->flush(5'000'000'000).ok());
    process_.barrier([this] { network_->progress(); });
    EXPECT_TRUE(network_->close(5'000'000'000).ok());
  }
  bool ok() const { return transport_ != nullptr; }
  Transport& operator*() { return *transport_; }
  Transport* operator->() { return transport_.get(); }
  net::Network& network() { return *network_; }
  std::vector<net::Address>& addresses() { return addresses_; }

  // Each rank knows it by another key.
  std::unique_ptr<Transport> open(uint32_t key) {
    Transport* made = nullptr;
    std::vector<net::Member> members;
    for (const net::Address& address : addresses_)
      members.push_back(
          {address, (key + 100 * static_cast<uint32_t>(members.size())) % (net::max_key + 1)});
    Status status = network_->open(process_.rank(), process_.nranks(), members.data(), &made);
    EXPECT_TRUE(status.ok());
    return std::unique_ptr<Transport>(made);
  }
  void barrier() {
    process_.barrier([this] { transport_->progress(); });
  }
  Status wait(Transport& transport, const Result<Transport::Handle>& handle, double limit_s = 20) {
    if (!handle.ok()) return handle.status();
    const auto begin = std::chrono::steady_clock::now();
    for (;;) {
      transport.progress();
      Poll poll = transport.test(*handle);
      if (poll.finished()) return poll.status();
      if (Seconds(std::chrono::steady_clock::now() - begin).count() > limit_s) {
        ADD_FAILURE() << "a transfer does not end";
        transport.cancel(*handle);
        return Code::timeout;
      }
      std::this_thread::yield();
    }
  }
  Status wait(const Result<Transport::Handle>& handle, double limit_s = 20) {
    return wait(*transport_, handle, limit_s);
  }

 private:
  Process& process_;
  std::unique_ptr<net::Network> network_;
  std::vector<net::Address> addresses_;
  std::unique_ptr<Transport> transport_;
};

std::vector<int> all_well(int nranks) {
  return std::vector<int>(static_cast<size_t>(nranks), 0);
}

// Both ways that a machine without a fast network has. Each test runs on each.
class Ucx : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (*GetParam() != 0) setenv("TUTTI_UCX_TLS", GetParam(), 1);
  }
  void TearDown() override { unsetenv("TUTTI_UCX_TLS"); }
};

std::vector<char> pattern(int from, int to, size_t bytes) {
  std::vector<char> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(from * 41 + to * 7 + i * 13 / 5);
  return data;
}

TEST_P(Ucx, MovesMessagesOfEveryLength) {
  EXPECT_EQ(run_processes(
                3,
                [](Process& process) {
                  Joined joined(process);
                  ASSERT_TRUE(joined.ok());
                  const int right = (process.rank() + 1) % 3;
                  const int left = (process.rank() + 2) % 3;
                  for (size_t bytes : {0, 1, 8, 100, 8191, 70000, 3000001}) {
                    std::vector<char> out = pattern(process.rank(), right, bytes);
                    Guarded in(bytes);
                    auto recv = joined->recv(left, 77, in.data(), bytes);
                    auto send = joined->send(right, 77, out.data(), bytes);
                    EXPECT_TRUE(joined.wait(recv).ok());
                    EXPECT_TRUE(joined.wait(send).ok());
                    std::vector<char> expected = pattern(left, process.rank(), bytes);
                    EXPECT_TRUE(bytes == 0 || std::memcmp(in.data(), expected.data(), bytes) == 0)
                        << bytes;
                    EXPECT_TRUE(in.intact());
                  }
                }),
            all_well(3));
}

TEST_P(Ucx, MatchesByCommunicatorSenderAndTag) {
  EXPECT_EQ(run_processes(3,
                          [](Process& process) {
                            Joined joined(process, net::max_key);
                            ASSERT_TRUE(joined.ok());
                            std::unique_ptr<Transport> other = joined.open(0);
                            constexpr uint64_t top = (uint64_t{1} << Transport::tag_bits) - 1;
                            if (process.rank() != 0) {
                              // Value names communicator, sender, tag, and the place in the order.
                              std::vector<uint64_t> values;
                              std::vector<std::pair<Transport*, Transport::Handle>> sends;
                              values.reserve(100);
                              for (uint64_t place = 0; place < 3; ++place)
                                for (Transport* transport : {&*joined, other.get()})
                                  for (uint64_t tag : {uint64_t{0}, top}) {
                                    values.push_back(place + 10 * (tag == top) +
                                                     100 * static_cast<uint64_t>(process.rank()) +
                                                     1000 * (transport == other.get()));
                                    sends.emplace_back(transport,
                                                       *transport->send(0, tag, &values.back(), 8));
                                  }
                              for (auto [transport, send] : sends)
                                EXPECT_TRUE(joined.wait(*transport, send).ok());
                              return;
                            }

                            for (int sender : {2, 1})
                              for (uint64_t tag : {top, uint64_t{0}})
                                for (Transport* transport : {other.get(), &*joined})
                                  for (uint64_t place = 0; place < 3; ++place) {
                                    uint64_t value = 0;
                                    auto recv = transport->recv(sender, tag, &value, 8);
                                    EXPECT_TRUE(joined.wait(*transport, recv).ok());
                                    EXPECT_EQ(value, place + 10 * (tag == top) +
                                                         100 * static_cast<uint64_t>(sender) +
                                                         1000 * (transport == other.get()));
                                  }
                          }),
            all_well(3));
}

TEST_P(Ucx, ErrorsAndTruncationReachTheReceiver) {
  EXPECT_EQ(
      run_processes(
          2,
          [](Process& process) {
            Joined joined(process);
            ASSERT_TRUE(joined.ok());
            for (size_t bytes : {size_t{16}, size_t{1} << 20}) {
              std::vector<char> data(bytes);
              if (process.rank() == 0) {
                EXPECT_TRUE(joined.wait(joined->send(1, 1, data.data(), bytes)).ok());
                joined->send_error(1, 2, Code::no_memory);
                joined->send_error(1, 3, Code::internal);
                EXPECT_TRUE(joined.wait(joined->send(1, 2, data.data(), bytes)).ok());
              } else {
                Guarded in(bytes / 2);
                EXPECT_EQ(joined.wait(joined->recv(0, 1, in.data(), bytes / 2)), Code::truncated);
                EXPECT_TRUE(in.intact());
                EXPECT_EQ(joined.wait(joined->recv(0, 3, data.data(), bytes)), Code::internal);
                EXPECT_EQ(joined.wait(joined->recv(0, 2, data.data(), bytes)), Code::no_memory);
                EXPECT_TRUE(joined.wait(joined->recv(0, 2, data.data(), bytes)).ok());
              }
            }
          }),
      all_well(2));
}

// Every registered algorithm, each with short vectors and with some that need rendezvous.
TEST_P(Ucx, RunsEveryAlgorithm) {
  const uint64_t seed = test_seed();
  for (int nranks : {2, 3, 4}) {
    auto body = [&](Process& process) {
      Joined joined(process);
      ASSERT_TRUE(joined.ok());
      uint64_t draw = seed, sequence = 0;
      for (const Algorithm* algorithm : algorithms())
        for (Coll coll : algorithm->collectives)
          for (uint64_t count : {7, 20000}) {
            ++draw;
            Call call(coll, nranks, count, draw % 2 == 0 || !reduces(coll), draw);
            const Params params = algorithm->standard_params();
            const Topology topology = trial_topology(nranks, draw);
            if (!algorithm->applies(call.agreed(), topology, params)) continue;
            SCOPED_TRACE(std::string(algorithm->scheme) + " " + call.describe());
            Trial trial(*algorithm, call, params, draw, topology,
                        [&](int rank) { return rank == process.rank() ? &*joined : nullptr; });
            trial.fill();
            trial.run(process.rank(), ++sequence);
            trial.check(process.rank());
            if (testing::Test::HasFailure()) _exit(1);
          }
      EXPECT_NE(std::string(joined.network().describe()), "");
      if (process.rank() == 0) std::printf("over %s\n", joined.network().describe());
    };
    EXPECT_EQ(run_processes(nranks, body, 200), all_well(nranks));
  }
}

TEST_P(Ucx, TwoThreadsUseTwoCommunicators) {
  EXPECT_EQ(run_processes(2,
                          [](Process& process) {
                            Joined joined(process, 1);
                            ASSERT_TRUE(joined.ok());
                            std::unique_ptr<Transport> second = joined.open(2);
                            Transport* transports[] = {&*joined, second.get()};
                            const int peer = 1 - process.rank();
                            run_ranks(2, [&](int thread) {
                              Transport& transport = *transports[thread];
                              for (uint64_t i = 0; i < 2000; ++i) {
                                uint64_t out = i * 2 + static_cast<uint64_t>(thread), in = 0;
                                auto recv = transport.recv(peer, i, &in, 8);
                                auto send = transport.send(peer, i, &out, 8);
                                ASSERT_TRUE(joined.wait(transport, recv).ok());
                                ASSERT_TRUE(joined.wait(transport, send).ok());
                                ASSERT_EQ(in, out);
                              }
                            });
                          }),
            all_well(2));
}

// A receive that nobody matches can be withdrawn; a long send whose peer does not come is given up
// within a bound, and the transport serves on.
TEST_P(Ucx, WithdrawsWithinABound) {
  EXPECT_EQ(
      run_processes(
          2,
          [](Process& process) {
            // With a handshake; what is sent eagerly needs no receiver.
            setenv("TUTTI_UCX_RNDV_THRESH", "64k", 1);
            std::vector<char> large(4 << 20);  // outlives the network, which may still read it
            Joined joined(process);
            ASSERT_TRUE(joined.ok());
            uint64_t small = 1;
            if (process.rank() == 0) {
              auto recv = joined->recv(1, 9, &small, 8);
              joined->progress();
              EXPECT_TRUE(joined->cancel(*recv));
              auto send = joined->send(1, 10, large.data(), large.size());
              ASSERT_TRUE(send.ok());
              const auto begin = std::chrono::steady_clock::now();
              for (int i = 0; i < 100; ++i) joined->progress();
              ASSERT_FALSE(joined->test(*send).finished());
              EXPECT_FALSE(joined->cancel(*send));
              EXPECT_LT(Seconds(std::chrono::steady_clock::now() - begin).count(), 2.0);
              joined.barrier();
              EXPECT_TRUE(joined.wait(joined->send(1, 11, &small, 8)).ok());
            } else {
              joined.barrier();
              EXPECT_TRUE(joined.wait(joined->recv(0, 11, &small, 8)).ok());
              // The late receiver still gets what was given up: it stays readable here.
              EXPECT_TRUE(joined.wait(joined->recv(0, 10, large.data(), large.size())).ok());
            }
          }),
      all_well(2));
}

TEST_P(Ucx, RefusesAnotherVersionAndTooManyRanks) {
  EXPECT_EQ(
      run_processes(2,
                    [](Process& process) {
                      Joined joined(process);
                      ASSERT_TRUE(joined.ok());
                      Transport* made = nullptr;
                      std::vector<net::Member> members;
                      for (const net::Address& address : joined.addresses())
                        members.push_back({address, 1});
                      net::Network& network = joined.network();
                      members[1].key = net::max_key + 1;
                      EXPECT_EQ(network.open(process.rank(), 2, members.data(), &made),
                                Code::unsupported);
                      members[1].key = 1;
                      EXPECT_EQ(network.open(0, net::max_ranks + 1, members.data(), &made),
                                Code::unsupported);
                      // Bytes 6 and 7 are the minor version of the peer's UCX.
                      net::Address& address = members[1].address;
                      std::string other(static_cast<const char*>(address.data), address.bytes);
                      other[6] = static_cast<char>(other[6] + 1);
                      address = {other.data(), other.size()};
                      EXPECT_EQ(network.open(0, 2, members.data(), &made), Code::unsupported);
                      address.bytes = 10;
                      EXPECT_EQ(network.open(0, 2, members.data(), &made), Code::bad_argument);
                      EXPECT_EQ(made, nullptr);
                    }),
      all_well(2));
}

std::string name_of(const testing::TestParamInfo<const char*>& info) {
  constexpr const char* names[] = {"Tcp", "SharedMemory", "TheStandard"};
  return names[info.index];
}

INSTANTIATE_TEST_SUITE_P(Over, Ucx, testing::Values("tcp,self", "sm,self", ""), name_of);

// A killed peer is an error on whoever is talking to it, within the time that the kernel takes to
// say so; those that only wait for it are ended by the watchdog's abort.
TEST(UcxFailure, ADeadPeerEndsTransfersOverTcp) {
  setenv("TUTTI_UCX_TLS", "tcp,self", 1);
  std::vector<int> ends = run_processes(3, [](Process& process) {
    Joined joined(process);
    ASSERT_TRUE(joined.ok());
    uint64_t data = 1;
    const int peers[] = {(process.rank() + 1) % 3, (process.rank() + 2) % 3};
    for (int peer : peers) EXPECT_TRUE(joined.wait(joined->send(peer, 1, &data, 8)).ok());
    for (int peer : peers) EXPECT_TRUE(joined.wait(joined->recv(peer, 1, &data, 8)).ok());
    joined.barrier();
    if (process.rank() == 2) raise(SIGKILL);
    std::vector<char> large(1 << 20);
    auto recv = joined->recv(2, 2, &data, 8);
    auto send = joined->send(2, 2, large.data(), large.size());
    // A send may have left for the socket before the kernel knew; what is sent afterwards is refused.
    const Status sent = joined.wait(send);
    EXPECT_TRUE(sent.ok() || sent == Code::peer_lost) << sent.text();
    EXPECT_EQ(joined.wait(recv), Code::peer_lost);
    EXPECT_EQ(joined.wait(joined->send(2, 3, &data, 8)), Code::peer_lost);
    // The others are not touched by it.
    const int peer = 1 - process.rank();
    auto in = joined->recv(peer, 4, &data, 8);
    EXPECT_TRUE(joined.wait(joined->send(peer, 4, large.data(), 8)).ok());
    EXPECT_TRUE(joined.wait(in).ok());
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);  // the barrier at the end has lost a member
  });
  unsetenv("TUTTI_UCX_TLS");
  EXPECT_EQ(ends, (std::vector<int>{0, 0, 128 + SIGKILL}));
}

TEST(UcxFailure, CloseIsBoundedWhenAPeerStandsStill) {
  setenv("TUTTI_UCX_TLS", "tcp,self", 1);
  std::vector<int> ends = run_processes(2, [](Process& process) {
    Result<const net::Module*> module = net::open_module("ucx");
    ASSERT_TRUE(module.ok());
    Result<net::Network*> network = net::open_network(**module, Config{}, false);
    ASSERT_TRUE(network.ok());
    std::vector<net::Address> addresses = process.exchange((*network)->address());
    Transport* transport = nullptr;
    const std::vector<net::Member> members = {{addresses[0], 1}, {addresses[1], 1}};
    ASSERT_TRUE((*network)->open(process.rank(), 2, members.data(), &transport).ok());
    if (process.rank() == 1) {
      while (process.flag(0) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      _exit(0);
    }
    // Nobody will ever read this.
    std::vector<char> large(8 << 20);
    ASSERT_TRUE(transport->send(1, 1, large.data(), large.size()).ok());
    for (int i = 0; i < 1000; ++i) transport->progress();
    const auto begin = std::chrono::steady_clock::now();
    Status status = (*network)->close(300'000'000);
    const double seconds = Seconds(std::chrono::steady_clock::now() - begin).count();
    EXPECT_EQ(status, Code::timeout);
    EXPECT_LT(seconds, 2.0);
    process.flag(0) = 1;
  });
  unsetenv("TUTTI_UCX_TLS");
  EXPECT_EQ(ends, all_well(2));
}

// Law 4: what a process can see of UCX's arrival.
struct Footprint {
  std::vector<struct sigaction> actions = std::vector<struct sigaction>(_NSIG);
  stack_t stack{};
  std::map<std::string, std::string> code;  // first bytes of functions that hooks would patch

  Footprint() {
    for (int i = 1; i < _NSIG; ++i) sigaction(i, nullptr, &actions[static_cast<size_t>(i)]);
    sigaltstack(nullptr, &stack);
    for (const char* name : {"mmap", "munmap", "mremap", "madvise", "brk", "sbrk", "shmat", "shmdt",
                             "malloc", "free", "fork"})
      code[name] = std::string(static_cast<const char*>(dlsym(RTLD_DEFAULT, name)), 16);
  }
  void expect_same(const Footprint& before) const {
    for (size_t i = 1; i < actions.size(); ++i) {
      EXPECT_EQ(actions[i].sa_sigaction, before.actions[i].sa_sigaction) << "signal " << i;
      EXPECT_EQ(actions[i].sa_flags, before.actions[i].sa_flags) << "signal " << i;
    }
    EXPECT_EQ(stack.ss_sp, before.stack.ss_sp);
    EXPECT_EQ(stack.ss_flags, before.stack.ss_flags);
    for (auto& [name, bytes] : code) EXPECT_EQ(bytes, before.code.at(name)) << name << " is hooked";
  }
};

void own_handler(int) {}

TEST(UcxNeutral, LoadingAndUseLeaveTheProcessAsItWas) {
  auto body = [](Process& process) {
    // The program's own handlers, one with an alternate stack.
    std::vector<char> stack_memory(1 << 16);
    stack_t stack{};
    stack.ss_sp = stack_memory.data();
    stack.ss_size = stack_memory.size();
    ASSERT_EQ(sigaltstack(&stack, nullptr), 0);
    struct sigaction action {};
    action.sa_handler = own_handler;
    action.sa_flags = SA_ONSTACK;
    ASSERT_EQ(sigaction(SIGSEGV, &action, nullptr), 0);
    ASSERT_EQ(sigaction(SIGHUP, &action, nullptr), 0);
    const Footprint before;
    {
      Joined joined(process);
      ASSERT_TRUE(joined.ok());
      std::vector<char> out(1 << 20), in(1 << 20);
      auto recv = joined->recv(1 - process.rank(), 1, in.data(), in.size());
      auto send = joined->send(1 - process.rank(), 1, out.data(), out.size());
      EXPECT_TRUE(joined.wait(recv).ok());
      EXPECT_TRUE(joined.wait(send).ok());
      Footprint().expect_same(before);
    }
    Footprint().expect_same(before);
  };
  EXPECT_EQ(run_processes(2, body), all_well(2));
}

// An option that this UCX does not know, or a device that is not there, makes it talk.
TEST(UcxNeutral, UcxSaysNothing) {
  char path[] = "/tmp/tutti-ucx-test-XXXXXX";
  const int file = mkstemp(path);
  ASSERT_GE(file, 0);
  std::vector<int> ends = run_processes(2, [&](Process& process) {
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    Joined joined(process);
    ASSERT_TRUE(joined.ok());
    uint64_t out = 1, in = 0;
    auto recv = joined->recv(1 - process.rank(), 1, &in, 8);
    EXPECT_TRUE(joined.wait(joined->send(1 - process.rank(), 1, &out, 8)).ok());
    EXPECT_TRUE(joined.wait(recv).ok());
  });
  EXPECT_EQ(ends, all_well(2));
  std::stringstream said;
  said << std::ifstream(path).rdbuf();
  EXPECT_EQ(said.str(), "");
  close(file);
  unlink(path);
}

TEST(UcxNeutral, TheUsersUcxSettingsAreForTheMpiBelow) {
  setenv("UCX_TLS", "self", 1);
  setenv("UCX_NET_DEVICES", "nothing", 1);
  setenv("UCX_RNDV_THRESH", "1", 1);
  std::vector<int> ends = run_processes(2, [](Process& process) {
    Joined joined(process);
    ASSERT_TRUE(joined.ok());
    uint64_t out = 1, in = 0;
    auto recv = joined->recv(1 - process.rank(), 1, &in, 8);
    EXPECT_TRUE(joined.wait(joined->send(1 - process.rank(), 1, &out, 8)).ok());
    EXPECT_TRUE(joined.wait(recv).ok());
  });
  EXPECT_EQ(ends, all_well(2));
  for (const char* name : {"UCX_TLS", "UCX_NET_DEVICES", "UCX_RNDV_THRESH"}) unsetenv(name);
}

TEST(UcxNeutral, ADeviceThatIsNotThereIsAnError) {
  std::vector<int> ends = run_processes(1, [](Process&) {
    setenv("TUTTI_UCX_TLS", "tcp", 1);
    Result<const net::Module*> module = net::open_module("ucx");
    ASSERT_TRUE(module.ok());
    Config config;
    config.net_devices = "no-such-device";
    const uint64_t warnings = log::count(log::Level::warn);
    EXPECT_EQ(net::open_network(**module, config, true).status(), Code::no_device);
    EXPECT_GT(log::count(log::Level::warn), warnings);
  });
  EXPECT_EQ(ends, all_well(1));
}

TEST(UcxModule, WhatIsNoModuleIsRefused) {
  EXPECT_EQ(net::open_module("no_such_module").status(), Code::no_resource);
  EXPECT_EQ(net::open_module("/no/such/file.so").status(), Code::no_resource);
  EXPECT_EQ(net::open_module("libc.so.6").status(), Code::no_resource);
}

}  // namespace
}  // namespace tutti
