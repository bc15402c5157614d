// Set-up of a communicator: records exchanged by one allgather of the base, peers' segments of the own
// node mapped, and everybody's verdict seen by everybody, so that all use tutti's paths or none does.
// On one node the verdicts go through shared memory. Over several nodes each node agrees so first;
// then the verdicts of all are gathered by a second allgather of the base.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/process.hpp"
#include "engine/operation.hpp"
#include "shm/node_group.hpp"

namespace tutti {

// What a rank tells of itself. Plain bytes; `check` covers the rest and what follows in the same
// message, so that arrival can be seen in memory.
struct SetupRecord {
  uint64_t version = 0;
  uint64_t config_hash = 0;
  shm::SegmentName segment;
  uint64_t slot_offset = 0;
  shm::LaneRange lane;
  uint32_t status = 0;  // Code of what this rank had to reserve
  uint32_t device_possible = 0;
  char host[40] = {};
  uint64_t check = 0;
};

// Over several nodes follows how the rank is reached.
struct NetRecord {
  uint32_t key = 0;  // by which it knows this communicator
  uint32_t rdma = 0;
  uint32_t address_bytes = 0;
  // About 250 bytes with one device, 60 more for each other.
  char address[1012] = {};
};

// What a rank of several nodes says in the end.
struct Verdict {
  uint64_t check = 0;
  uint32_t code = 0;
  char reason[180] = {};
};

class Setup final : public Operation {
 public:
  // Over several nodes if base.nodes says so: then the process's network is opened, for several
  // threads if they are to progress calls.
  Setup(const BaseComm& base, Process& process, const Config& config, bool several_threads = false);
  ~Setup() override;

  Status start() override;
  Poll poll() override;
  void abort(Status why) override;
  bool needs_base() const override { return phase_ == Phase::tell; }
  Status check_peers() override;
  const char* phase() const override;
  std::string waiting_for() const override;

  // Completes the base's requests; may call MPI. After the last poll.
  void reap();
  // This rank will not look at the peers' slots again, and gives its own and its key back. Once, at
  // the end.
  void release();
  // Once finished: whether all is well on all ranks. Otherwise everything goes below, with the reason,
  // unless lost() says that calls have to end with an error.
  bool ready() const { return phase_ == Phase::done && code_ == Code::ok; }
  const std::string& reason() const { return reason_; }
  Status lost() const { return lost_; }
  bool any_device_possible() const { return any_device_possible_; }
  // Of this node's ranks; nullptr where there is but one.
  std::unique_ptr<shm::NodeGroup> take_group() { return std::move(group_); }
  // Between all ranks; over several nodes only.
  std::unique_ptr<Transport> take_transport() { return std::move(transport_); }
  bool all_rdma() const { return all_rdma_; }
  // Ranks of this node, ascending.
  const std::vector<int32_t>& here() const { return here_; }
  const SetupRecord& record(int rank) const;
  std::string rank_text(int rank) const;  // "rank 3 (host b, pid 17)"

 private:
  enum class Phase : uint8_t { gather, attach, meet, agree, tell, hear, done };
  bool several_nodes() const { return static_cast<int>(here_.size()) < base_.nranks; }
  void reserve();
  Status reserve_slot();
  Status reserve_network();
  size_t wire_bytes() const {
    return sizeof(SetupRecord) + (several_nodes() ? sizeof(NetRecord) : 0);
  }
  const NetRecord& net_record(int rank) const;
  bool all_records_here();
  void compare_records();
  void map_node();
  void open_transport();
  void begin_meeting();
  void miss(Status why, int peer);
  bool met();
  void leave_meeting();
  void publish();
  void fail(Code code, std::string reason);
  std::optional<Code> node_verdict();
  void tell();
  bool all_verdicts_here();
  const char* missing_path() const;
  void conclude();

  BaseComm base_;
  Process& process_;
  const Config& config_;
  const bool several_threads_;
  std::vector<int32_t> here_;
  int place_ = 0;  // of this rank in it
  // What the base reads and writes; as words, for their alignment. In memory of its own because it
  // has to stay where the base may never be done with it.
  struct Wire {
    std::vector<uint64_t> own, all, copy;
    Verdict verdict;
    std::vector<Verdict> verdicts;
  };
  std::unique_ptr<Wire> wire_;
  std::optional<shm::SlotPool::Grant> grant_;
  std::optional<uint32_t> key_;
  std::vector<shm::Member> members_;  // in the order of here_
  std::unique_ptr<shm::NodeGroup> group_;
  std::unique_ptr<Transport> transport_;
  // A message from and to every 2^k-th rank, to know that the network carries them.
  struct Greeting {
    int peer = 0;
    bool finished = false;
    Transport::Handle handle = 0;
    uint64_t word = 0;
  };
  std::vector<Greeting> greetings_;
  uint64_t meeting_ends_ns_ = 0;
  bool unreached_ = false;
  std::string reason_;
  void* requests_[2] = {nullptr, nullptr};
  int cursor_ = 0;
  bool any_device_possible_ = false;
  bool all_rdma_ = true;
  bool abandoned_ = false;
  Code code_ = Code::ok;
  Status lost_;
  Phase phase_ = Phase::gather;
};

}  // namespace tutti
