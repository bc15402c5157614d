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

}  // namespace tutti
