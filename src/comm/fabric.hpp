// Fabric: this process's network, opened with its first communicator that spans nodes, and the keys by
// which it knows such communicators.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

#include "base/config.hpp"
#include "base/status.hpp"
#include "pml/network.hpp"

namespace tutti {

class Fabric {
 public:
  // The network; opened at the first call, whose outcome stays. The module says why it cannot be.
  Result<net::Network*> open(const Config& config, bool several_threads);
  // The network reaches not every peer: later communicators are refused with that status.
  void give_up(Status why);
  bool is_open() const { return network_.load(std::memory_order_acquire) != nullptr; }

  // A key of this process for one more communicator. The one that came back longest ago is taken
  // first, so that a late message of a call that ended in error finds nobody.
  Result<uint32_t> take_key();
  void give_key(uint32_t key);

  // Once a process, when messages have been exchanged: says aloud that they go over TCP.
  void say_carrier(const std::string& comm_name);

  // Teardown: flush(), then a barrier of all processes, each calling progress() meanwhile, then
  // close(). timeout_ns bounds the first and the last.
  void flush(uint64_t timeout_ns);
  void progress();
  void close(uint64_t timeout_ns);

 private:
  std::mutex mutex_;
  std::atomic<net::Network*> network_{nullptr};
  bool tried_ = false;
  Status status_;
  uint32_t fresh_key_ = 0;
  std::deque<uint32_t> keys_;
  std::atomic<bool> said_{false};
};

}  // namespace tutti
