// A communicator's transport over this process's UCX.
#pragma once

#include <vector>

#include "pml/transport.hpp"
#include "pml/ucx/network.hpp"
#include "pml/ucx/tag.hpp"

namespace tutti::ucx {

class UcxTransport final : public Transport {
 public:
  UcxTransport(UcxNetwork& network, uint32_t key, int rank, std::vector<Peer*> peers)
      : network_(network), key_(key), rank_(rank), peers_(std::move(peers)) {}

  int rank() const override { return rank_; }
  int nranks() const override { return static_cast<int>(peers_.size()); }
  Result<Handle> send(int peer, uint64_t tag, const void* data, size_t bytes) override {
    return handle_of(network_.send(at(peer), match_word(key_, rank_, tag), data, bytes));
  }
  Result<Handle> recv(int peer, uint64_t tag, void* data, size_t bytes) override {
    return handle_of(network_.recv(at(peer), match_word(key_, peer, tag), data, bytes));
  }
  void send_error(int peer, uint64_t tag, Status why) override {
    network_.send_error(at(peer), match_word(key_, rank_, tag, why.code()));
  }
  Poll test(Handle handle) override { return network_.test(slot_of(handle)); }
  void progress() override { network_.progress(); }
  bool cancel(Handle handle) override { return network_.cancel(slot_of(handle)); }

 private:
  static Result<Handle> handle_of(Result<Slot*> slot) {
    if (!slot.ok()) return slot.status();
    return Handle{reinterpret_cast<uintptr_t>(*slot)};
  }
  static Slot* slot_of(Handle handle) { return reinterpret_cast<Slot*>(handle); }
  Peer& at(int peer) { return *peers_[static_cast<size_t>(peer)]; }

  UcxNetwork& network_;
  const uint32_t key_;
  const int rank_;
  const std::vector<Peer*> peers_;
};

}  // namespace tutti::ucx
