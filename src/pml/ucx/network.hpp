// One process's UCX: a context and a worker of its own, endpoints to peer processes, and the
// requests of all transfers.
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "pml/network.hpp"

namespace tutti::ucx {

// Says one line through the host's log; level as in log::Level.
enum class Level : int { error = 1, warn = 2, info = 3, debug = 4 };
void say(Level level, const std::string& message);
void set_services(const net::Services* services);

class UcxNetwork;

// A process that this one has heard of. Lives as long as the Network.
struct Peer {
  UcxNetwork* network = nullptr;
  std::string address;  // the worker's, as UCX wants it
  std::string name;     // "host:pid", for messages
  ucp_ep_h endpoint = nullptr;
  std::atomic<bool> lost{false};
  // Did not answer while a transfer was withdrawn; the next withdrawal does not wait for it.
  bool slow = false;
};

// One transfer; UCX keeps its part of the request in front of it.
struct Slot {
  UcxNetwork* network = nullptr;
  std::atomic<bool> done{false};
  bool receives = false;
  bool abandoned = false;  // nobody will test it: it comes back when UCX is through with it
  Peer* peer = nullptr;
  ucs_status_t status = UCS_OK;
  ucp_tag_recv_info_t info{};
  Slot* next = nullptr;  // of the free list
};

class UcxNetwork final : public net::Network {
 public:
  static Status open(const net::Options& options, net::Network** out);
  ~UcxNetwork() override;

  net::Address address() const override { return {address_.data(), address_.size()}; }
  Status open(int rank, int nranks, const net::Member* members, Transport** out) override;
  bool rdma() const override { return rdma_; }
  const char* describe() override;
  void progress() override;
  Status flush(uint64_t timeout_ns) override;
  Status close(uint64_t timeout_ns) override;

  // For the transports.
  Result<Slot*> send(Peer& peer, uint64_t word, const void* data, size_t bytes);
  Result<Slot*> recv(Peer& peer, uint64_t word, void* data, size_t bytes);
  void send_error(Peer& peer, uint64_t word);
  Poll test(Slot* slot);
  bool cancel(Slot* slot);
  // *flush: what goes on between two questions of one asker; nullptr at first.
  bool quiet(void** flush);
  void drop_flush(void* flush);

 private:
  class Lock;
  explicit UcxNetwork(bool several_threads) : locks_(several_threads) {}
  Status start(const net::Options& options);
  Status open_worker();
  Status make_address();
  Result<Peer*> peer_of(const net::Address& address);
  Status connect(Peer& peer);
  Result<Slot*> take_slot(Peer& peer, bool receives);
  Status grow_slots();
  void give_slot(Slot* slot);
  // Called when UCX has let go of the slot.
  static void settle(Slot* slot, ucs_status_t status);
  void abandon(Slot* slot);
  Result<Slot*> post_send(Peer& peer, uint64_t word, const void* data, size_t bytes);
  // True when the slot was done in time.
  bool wait_for(const Slot& slot, uint64_t timeout_ns);

  static void on_lost(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  static void on_sent(void* request, ucs_status_t status, void* slot);
  static void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                          void* slot);

  const bool locks_;
  bool rdma_ = false;
  std::atomic<bool> any_lost_{false};
  std::atomic<bool> ending_{false};
  std::mutex mutex_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::string address_;
  std::string description_;
  std::map<std::string, std::unique_ptr<Peer>, std::less<>> peers_;  // by the whole address
  size_t request_bytes_ = 0;                                         // UCX's part
  std::vector<void*> chunks_;                                        // of slots
  Slot* free_ = nullptr;
};

}  // namespace tutti::ucx
