// A communicator's transport over this process's UCX.
#pragma once

#include <vector>

#include "pml/transport.hpp"
#include "pml/ucx/network.hpp"
#include "pml/ucx/tag.hpp"

namespace tutti::ucx {

class UcxTransport final : public Transport {
 public:
  // What a rank is sent and where.
  struct End {
    Peer* peer = nullptr;
    uint32_t key = 0;  // by which it knows the communicator
  };
  UcxTransport(UcxNetwork& network, int rank, std::vector<End> ends)
      : network_(network), rank_(rank), ends_(std::move(ends)) {}
  ~UcxTransport() override { network_.drop_flush(flush_); }
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;

  int rank() const override { return rank_; }
  int nranks() const override { return static_cast<int>(ends_.size()); }
  Result<Handle> send(int peer, uint64_t tag, const void* data, size_t bytes) override {
    return handle_of(
        network_.send(*at(peer).peer, match_word(at(peer).key, rank_, tag), data, bytes));
  }
  Result<Handle> recv(int peer, uint64_t tag, void* data, size_t bytes) override {
    return handle_of(
        network_.recv(*at(peer).peer, match_word(at(rank_).key, peer, tag), data, bytes));
  }
  void send_error(int peer, uint64_t tag, Status why) override {
    network_.send_error(*at(peer).peer, match_word(at(peer).key, rank_, tag, why.code()));
  }
  Poll test(Handle handle) override { return network_.test(slot_of(handle)); }
  void progress() override { network_.progress(); }
  bool quiet() override { return network_.quiet(&flush_); }
  bool cancel(Handle handle) override { return network_.cancel(slot_of(handle)); }

 private:
  static Result<Handle> handle_of(Result<Slot*> slot) {
    if (!slot.ok()) return slot.status();
    return Handle{reinterpret_cast<uintptr_t>(*slot)};
  }
  static Slot* slot_of(Handle handle) { return reinterpret_cast<Slot*>(handle); }
  const End& at(int peer) const { return ends_[static_cast<size_t>(peer)]; }

  UcxNetwork& network_;
  const int rank_;
  const std::vector<End> ends_;
  void* flush_ = nullptr;
};

}  // namespace tutti::ucx
