#include "comm/fabric.hpp"

#include <cstring>
#include <memory>

#include "base/log.hpp"
#include "pml/module.hpp"

namespace tutti {

Result<net::Network*> Fabric::open(const Config& config, bool several_threads) {
  const std::lock_guard guard(mutex_);
  if (!tried_) {
    tried_ = true;
    auto module = net::open_module(config.net_module == "auto" ? "ucx" : config.net_module);
    status_ = module.status();
    if (module.ok()) {
      auto network = net::open_network(**module, config, several_threads);
      status_ = network.status();
      if (network.ok()) network_.store(*network, std::memory_order_release);
    }
  }
  if (!status_.ok()) return status_;
  return network_.load(std::memory_order_relaxed);
}

void Fabric::give_up(Status why) {
  const std::lock_guard guard(mutex_);
  if (status_.ok()) status_ = why;
}

Result<uint32_t> Fabric::take_key() {
  const std::lock_guard guard(mutex_);
  if (fresh_key_ <= net::max_key) return fresh_key_++;
  if (keys_.empty()) {
    TUTTI_WARN("comm", "all {} keys of communicators over several nodes are in use",
               net::max_key + 1);
    return Code::no_resource;
  }
  const uint32_t key = keys_.front();
  keys_.pop_front();
  return key;
}

void Fabric::give_key(uint32_t key) {
  const std::lock_guard guard(mutex_);
  keys_.push_back(key);
}

void Fabric::say_carrier(const std::string& comm_name) {
  if (said_.exchange(true)) return;
  net::Network* network = network_.load(std::memory_order_acquire);
  if (network == nullptr) return;
  const char* carrier = network->describe();
  if (network->rdma())
    TUTTI_INFO("comm", "{}: messages between nodes go over {}", comm_name, carrier);
  else
    TUTTI_WARN("comm", "{}: messages between nodes go over TCP ({}): no RDMA device is in use",
               comm_name, carrier);
}

void Fabric::flush(uint64_t timeout_ns) {
  if (net::Network* network = network_.load()) (void)network->flush(timeout_ns);
}

void Fabric::progress() {
  if (net::Network* network = network_.load()) network->progress();
}

void Fabric::close(uint64_t timeout_ns) {
  const std::lock_guard guard(mutex_);
  std::unique_ptr<net::Network> network(network_.exchange(nullptr));
  if (network == nullptr) return;
  (void)network->close(timeout_ns);
  status_ = Code::no_resource;
}

}  // namespace tutti
