// SpanCall: one collective call on a communicator of several nodes: the schedule that its agreed facts
// lead to, run over the network and inside nodes by shared memory or kernels; staged through host memory
// where this rank's own buffers lie on a device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/choices.hpp"
#include "comm/memory.hpp"
#include "comm/node_groups.hpp"
#include "comm/span_plans.hpp"
#include "engine/operation.hpp"

namespace tutti {

class Fabric;
struct Config;

// What chooses on communicators of several nodes: the settings' rules and rows, and those of tutti.
struct SpanTuning {
  std::vector<TuneRule> rules, table;
  CostModel model;
  Tuning view;         // of the above
  uint32_t calls = 0;  // bit 1 << Coll of each that may be native
  bool may_want(Coll coll) const { return (calls >> static_cast<uint32_t>(coll) & 1) != 0; }

  // rdma: of the network. With TUTTI_NET=auto what nobody measured goes below.
  void open(const Config& config, bool rdma);
};

// What calls of one communicator share.
struct SpanContext {
  int rank = 0;
  std::string name;
  Topology topology;
  SpanTuning tuning;
  std::unique_ptr<Transport> transport;
  NodeContext* node = nullptr;  // missing where this rank is alone on its node
  std::unique_ptr<NodeGroups> groups;
  std::unique_ptr<SpanPlans> plans;
  mutable Choices choices;
  std::vector<std::string> rank_texts;
  Fabric* fabric = nullptr;
  bool device_possible = false;
  uint64_t sequence = 0;  // of the last call
  // How an earlier call ended: its messages may be half sent, so no later one can be trusted.
  Status failed;

  Choice choice(const Agreed& agreed) const { return choices.get(agreed, topology, tuning.view); }
  void fail(Status why);
};

// Copies of one call between the device of its buffers and host memory.
class DeviceCopies final : public CopyRunner {
 public:
  void bind(int32_t device) { device_ = device; }
  Status start(void* to, const void* from, size_t bytes, uint64_t* handle) override {
    return memory::copy_start(device_, to, from, bytes, handle);
  }
  Poll poll(uint64_t handle) override { return memory::copy_poll(handle); }

 private:
  int32_t device_ = -1;
};

// The call as it is made over nodes: partial sums and products of 16 bits as fp32 (law 5).
Agreed over_nodes(const Agreed& agreed);

class SpanCall final : public Operation {
 public:
  using Context = SpanContext;
  SpanCall(SpanContext& context, const Problem& problem)
      : context_(context), whole_{over_nodes(problem.agreed), problem.local} {}
  ~SpanCall() override;
  SpanCall(const SpanCall&) = delete;
  SpanCall& operator=(const SpanCall&) = delete;

  Status start() override;
  Poll poll() override;
  void abort(Status why) override;
  Status check_peers() override;
  const char* phase() const override;
  std::string waiting_for() const override;

 private:
  void look_at_buffers();
  Status start_segment();
  void cut_segment();
  Status prepare();
  void bind();
  void refuse(Status why);
  Poll end(Status status);

  SpanContext& context_;
  Problem whole_;
  Problem problem_;      // the segment of it that runs
  uint64_t behind_ = 0;  // where that ends
  Executor* executor_ = nullptr;
  uint64_t scratch_bytes_ = 0;
  uint64_t wide_at_ = 0;  // where fp32 partial results begin in the scratch
  void* scratch_ = nullptr;
  DeviceCopies copies_;
  bool runs_ = false;
};

}  // namespace tutti
