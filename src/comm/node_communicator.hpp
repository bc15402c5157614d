// A communicator whose ranks all lie on one node: classes H and N.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "comm/host_habit.hpp"
#include "comm/lane_communicator.hpp"
#include "comm/node_call.hpp"
#include "comm/start_order.hpp"

namespace tutti {

// A node's group with the collectives that move through its lanes.
struct NodeParts {
  std::unique_ptr<shm::NodeGroup> group;
  std::unique_ptr<shm::NodeAllreduce> allreduce;
  std::unique_ptr<shm::NodeExchange> exchange;
  std::unique_ptr<DeviceGroup> device;  // where some rank may see a device
  NodeContext context;

  // Of the ranks that a set-up found on this node.
  void take(Setup& setup, Process& process, const Config& config, const std::string& comm_name);
  void close();
};

class NodeCommunicator final : public LaneCommunicator<NodeCall> {
 public:
  NodeCommunicator(const BaseComm& base, Engine& engine, const Config& config)
      : LaneCommunicator(base, engine, config) {}

  Path choose_blocking(const Agreed& agreed) override;
  Status run(const Problem& problem) override;
  bool orders_starts() const override { return parts_.device != nullptr; }
  void begin_in_any_order(uint64_t number, const Problem& problem, Request& request) override;
  void go() override { order_->go(); }
  void close() override;
  // Whether such a communicator may want calls of that collective.
  static bool may_want(Coll coll, bool device_possible);

 private:
  bool wants_here(Coll coll) const override { return may_want(coll, any_device_possible_); }
  std::string take_setup(Setup& setup) override;
  bool takes(const Agreed& agreed) const override;
  NodeContext& context() override { return parts_.context; }
  uint64_t next_sequence() const override { return parts_.group->sequence() + 1; }

  NodeParts parts_;
  HostHabit habit_;
  // Made by the first such call, of whatever thread.
  std::once_flag order_made_;
  std::unique_ptr<StartOrder> order_;
};

}  // namespace tutti
