// Set-up of a communicator on one node: records exchanged by one allgather of the base, peers'
// segments mapped, and everybody's verdict seen by everybody, so that all use tutti's paths or none
// does.
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

// What a rank tells of itself. Plain bytes; `check` covers the rest, so that arrival can be seen in
// memory.
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

  uint64_t compute_check() const;
};

class Setup final : public Operation {
 public:
  Setup(const BaseComm& base, Process& process, const Config& config);

  Status start() override;
  Poll poll() override;
  void abort(Status why) override;
  Status check_peers() override;
  const char* phase() const override;
  std::string waiting_for() const override;

  // Completes the base's request; may call MPI. After the last poll.
  void reap();
  // This rank will not look at the peers' slots again, and gives its own back. Once, at the end.
  void release();
  // Once finished: the group, or nullptr with the reason why everything goes below.
  std::unique_ptr<shm::NodeGroup> take_group() { return std::move(group_); }
  const std::string& reason() const { return reason_; }
  bool any_device_possible() const { return any_device_possible_; }
  const SetupRecord& record(int rank) const { return records_[static_cast<size_t>(rank)]; }

 private:
  enum class Phase : uint8_t { gather, attach, agree, done };
  void reserve();
  bool all_records_here();
  void attach();
  std::optional<Code> verdict();
  void conclude();

  BaseComm base_;
  Process& process_;
  const Config& config_;
  std::vector<SetupRecord> records_;
  SetupRecord own_;
  std::optional<shm::SlotPool::Grant> grant_;
  std::vector<shm::Member> members_;
  std::unique_ptr<shm::NodeGroup> group_;
  std::string reason_;
  void* request_ = nullptr;
  int cursor_ = 0;
  bool any_device_possible_ = false;
  Code code_ = Code::ok;
  Phase phase_ = Phase::gather;
};

}  // namespace tutti
