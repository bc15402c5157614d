// NodeCall: one collective call on a communicator that lies on one node: the gate, then the path
// that what all ranks announced leads to.
//
// Class H (no member can see a device): the buffers are host memory and are not looked at. Class N:
// each rank announces the kind of its buffers; the kinds of all, equal for all once the gate is
// closed, choose the GPU's kernels (all on the group's devices, or tutti's own pinned memory beside such),
// else the rounds over shared
// memory, in which a rank with device buffers copies to and from its lanes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/peer_process.hpp"
#include "comm/process.hpp"
#include "core/problem.hpp"
#include "engine/operation.hpp"
#include "gpu/device.hpp"
#include "shm/node_allreduce.hpp"
#include "shm/node_exchange.hpp"

namespace tutti {

// The GPU end of a node: made at the first call in which all ranks have device buffers, by rounds
// over the board: blobs, then verdicts. All-or-nothing, and kept for the life of the communicator.
class DeviceGroup {
 public:
  enum class State : uint8_t { untried, blobs, verdicts, ready, failed };

  DeviceGroup(shm::NodeGroup& group, const Config& config, std::string comm_name,
              uint64_t linger_ns);
  ~DeviceGroup();

  State state() const { return state_; }
  // TUTTI_REQUIRE=p2p: a call that would fall back is an error, on all ranks alike.
  bool required() const { return config_.require.p2p; }
  // Goes on with set-up; finished when ready or failed.
  Poll connect(const gpu::Module* module, int device);
  const gpu::Module* module() const { return module_; }
  gpu::Group* group() const { return group_; }
  int device() const { return device_; }

 private:
  void offer(const gpu::Module* module, int device);
  bool collect();
  void settle();

  shm::NodeGroup& node_;
  const Config& config_;
  std::string comm_name_;
  uint64_t linger_ns_;
  const gpu::Module* module_ = nullptr;
  gpu::Group* group_ = nullptr;
  int device_ = -1;
  int cursor_ = 0;
  Status own_;
  std::vector<gpu::Blob> blobs_;
  State state_ = State::untried;
};

// What calls of one communicator share.
struct NodeContext {
  shm::NodeGroup* group = nullptr;
  shm::NodeAllreduce* allreduce = nullptr;
  shm::NodeExchange* exchange = nullptr;
  DeviceGroup* device = nullptr;  // nullptr in class H
  Process* process = nullptr;
  std::vector<std::string> members;  // "rank 3 (host b, pid 17)"
  std::vector<PeerProcess> processes;

  shm::Rounds& rounds(Coll coll) const {
    if (coll == Coll::allreduce) return *allreduce;
    return *exchange;
  }
};

// What is known of a call's buffer beforehand: nothing; that it is one of memory::take_block, which kernels
// and the CPU both reach; that there is none.
enum class Buffer : uint8_t { unknown, pinned, missing };

class NodeCall final : public Operation {
 public:
  using Context = NodeContext;
  NodeCall(NodeContext& context, const Problem& problem, Buffer send = Buffer::unknown,
           Buffer recv = Buffer::unknown)
      : context_(context), problem_(problem), send_(send), recv_(recv) {}

  Status start() override;
  Poll poll() override;
  void abort(Status why) override;
  Status check_peers() override;
  const char* phase() const override;
  std::string waiting_for() const override;

  // Who copies between a device buffer and a lane.
  struct Copier {
    const gpu::Module* module = nullptr;
    int device = -1;
  };

 private:
  enum class Phase : uint8_t { gate, connect, kernel, rounds, done };
  void look_at_buffers();
  shm::Access access();
  Poll after_gate();
  Poll take_inline();
  uint64_t input_bytes() const;
  bool fits_inline() const;
  const std::byte* own_input() const;
  bool empty() const;
  int missing() const;
  Poll begin_kernel();
  Poll begin_rounds();

  NodeContext& context_;
  Problem problem_;
  Buffer send_;
  Buffer recv_;
  const gpu::Module* module_ = nullptr;  // where this rank's driver is live
  shm::Reach reach_ = shm::Reach::host;
  int device_ = -1;
  gpu::Kind recv_kind_ = gpu::Kind::managed;
  gpu::Kind send_kind_ = gpu::Kind::managed;
  Copier copier_;
  uint32_t looks_ = 0;
  bool laid_out_ = false;
  Phase phase_ = Phase::gate;
};

// Hash of what all ranks must agree on; never of handle values.
uint64_t signature(const Agreed& agreed);

}  // namespace tutti
