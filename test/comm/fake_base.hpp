// A base that is a few lines, and ranks as threads over it.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"

namespace tutti {

// The base of one communicator: allgathers, in their order, whose data arrives when ranks make
// progress.
class FakeBase {
 public:
  explicit FakeBase(int nranks) : begun_(static_cast<size_t>(nranks)) {}

  BaseComm of(int rank) {
    BaseComm base;
    auto* handle = new Handle{this, rank};
    handles_[static_cast<size_t>(rank)].reset(handle);
    base.handle = handle;
    base.rank = rank;
    base.nranks = static_cast<int>(begun_.size());
    base.name = "fake";
    base.nodes.assign(begun_.size(), 0);
    base.network = true;
    base.allgather_start = [](void* opaque, const void* mine, void* all, size_t bytes,
                              void** request) {
      auto* h = static_cast<Handle*>(opaque);
      std::lock_guard lock(h->base->mutex_);
      const auto* from = static_cast<const std::byte*>(mine);
      auto& own = h->base->begun_[static_cast<size_t>(h->rank)];
      own.push_back(std::make_unique<Gather>(Gather{
          h->base, h->rank, own.size(), {from, from + bytes}, static_cast<std::byte*>(all)}));
      *request = own.back().get();
      return Status();
    };
    base.allgather_test = [](void* request) {
      auto* gather = static_cast<Gather*>(request);
      std::lock_guard lock(gather->base->mutex_);
      return gather->base->deliver(*gather) ? Poll::done() : Poll::busy();
    };
    return base;
  }

  // What the base's progress on that rank does: hand over what has come.
  void deliver(int rank) {
    std::lock_guard lock(mutex_);
    for (const auto& gather : begun_[static_cast<size_t>(rank)]) deliver(*gather);
  }

 private:
  struct Handle {
    FakeBase* base;
    int rank;
  };
  // One rank's part of its allgather number `number`.
  struct Gather {
    FakeBase* base;
    int rank;
    size_t number;
    std::vector<std::byte> mine;
    std::byte* all;
    std::vector<bool> delivered = {};
  };
  bool deliver(Gather& to) {
    bool complete = true;
    to.delivered.resize(begun_.size());
    for (size_t r = 0; r < begun_.size(); ++r) {
      if (to.delivered[r]) continue;
      if (begun_[r].size() <= to.number) {
        complete = false;
        continue;
      }
      const Gather& from = *begun_[r][to.number];
      std::memcpy(to.all + r * from.mine.size(), from.mine.data(), from.mine.size());
      to.delivered[r] = true;
    }
    return complete;
  }
  std::mutex mutex_;
  std::vector<std::vector<std::unique_ptr<Gather>>> begun_;  // per rank
  std::array<std::unique_ptr<Handle>, 64> handles_;
};

// base_progress has no argument: each thread says which bases it drives.
inline thread_local std::vector<std::pair<FakeBase*, int>> driven;

inline EngineHooks fake_hooks() {
  EngineHooks hooks;
  hooks.base_progress = [] {
    for (auto& [base, rank] : driven) base->deliver(rank);
    std::this_thread::yield();
  };
  return hooks;
}

inline void on_all_ranks(int nranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < nranks; ++r)
    threads.emplace_back([&, r] {
      driven.clear();
      body(r);
    });
  for (auto& thread : threads) thread.join();
}

// Messages of communicators over nodes go over no device here, which is said aloud.
class Quiet {
 public:
  Quiet() : before_(log::threshold.exchange(log::Level::off)) {}
  ~Quiet() { log::threshold.store(before_); }

 private:
  log::Level before_;
};

}  // namespace tutti
