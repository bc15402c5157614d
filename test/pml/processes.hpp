// Ranks as processes of this machine, for what threads of one process cannot stand for.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "pml/network.hpp"

namespace tutti {

inline constexpr int max_processes = 8;

// What the processes share: a barrier and everybody's address.
struct Shared {
  std::atomic<int> arrived{0};
  std::array<std::atomic<int>, 16> flags{};
  struct Slot {
    size_t bytes = 0;
    char data[4000];
  };
  std::array<Slot, max_processes> addresses;
};

class Process {
 public:
  Process(Shared& shared, int rank, int nranks) : shared_(shared), rank_(rank), nranks_(nranks) {}
  int rank() const { return rank_; }
  int nranks() const { return nranks_; }
  std::atomic<int>& flag(size_t i) { return shared_.flags[i]; }

  // All processes, each the same number of times; `meanwhile` keeps a network going.
  void barrier(const std::function<void()>& meanwhile = {}) {
    const int goal = ++barriers_ * nranks_;
    ++shared_.arrived;
    while (shared_.arrived < goal) {
      if (meanwhile) meanwhile();
      std::this_thread::yield();
    }
  }

  // Everybody's address, as an allgather of the base would give it.
  std::vector<net::Address> exchange(const net::Address& own) {
    Shared::Slot& mine = shared_.addresses[static_cast<size_t>(rank_)];
    if (own.bytes > sizeof mine.data) _exit(99);
    std::memcpy(mine.data, own.data, own.bytes);
    mine.bytes = own.bytes;
    barrier();
    std::vector<net::Address> all;
    for (int r = 0; r < nranks_; ++r) {
      const Shared::Slot& slot = shared_.addresses[static_cast<size_t>(r)];
      all.push_back({slot.data, slot.bytes});
    }
    barrier();
    return all;
  }

 private:
  Shared& shared_;
  int rank_, nranks_, barriers_ = 0;
};

// How each process ended: its exit code, or 128 + signal; 0 is well, 1 a failed expectation.
// After `limit_s` what still runs is killed.
std::vector<int> run_processes(int nranks, const std::function<void(Process&)>& f,
                               int limit_s = 60);

}  // namespace tutti
