#include "comm/node_communicator.hpp"

#include "base/text.hpp"
#include "sched/contract.hpp"
#include "shm/reduce.hpp"

namespace tutti {

void NodeParts::take(Setup& setup, Process& process, const Config& config,
                     const std::string& comm_name) {
  group = setup.take_group();
  if (group == nullptr) return;
  const auto oneshot_limit_bytes = static_cast<size_t>(
      config.shm_oneshot_bytes.value_or(shm::NodeAllreduce::oneshot_limit(group->nranks())));
  allreduce = std::make_unique<shm::NodeAllreduce>(*group, oneshot_limit_bytes);
  exchange = std::make_unique<shm::NodeExchange>(*group);
  context.group = group.get();
  context.allreduce = allreduce.get();
  context.exchange = exchange.get();
  context.process = &process;
  for (int32_t rank : setup.here()) {
    context.members.push_back(setup.rank_text(rank));
    context.processes.emplace_back(setup.record(rank).segment.pid);
  }
  if (!setup.any_device_possible()) return;
  device = std::make_unique<DeviceGroup>(*group, config, comm_name, process.gpu_linger_ns());
  context.device = device.get();
}

void NodeParts::close() {
  context = NodeContext{};
  allreduce.reset();
  exchange.reset();
  group.reset();
}

std::string NodeCommunicator::take_setup(Setup& setup) {
  parts_.take(setup, process_, config_, base_.name);
  if (!any_device_possible_) return "one node, host memory: shared memory";
  return "one node, devices possible: shared memory and kernels";
}

// What tutti performs itself on one node. In class H only what is never slower than the base (law 6);
// in class N whatever can, because the alternative for a device buffer is a bounce.
bool NodeCommunicator::may_want(Coll coll, bool device_possible) {
  return coll == Coll::allreduce || (device_possible && shm::NodeExchange::handles(coll));
}

bool NodeCommunicator::takes(const Agreed& agreed) const {
  if (reduces(agreed.coll) && !shm::reducible(agreed.op, agreed.dtype)) return false;
  return wants_here(agreed.coll);
}

Path NodeCommunicator::choose_blocking(const Agreed& agreed) {
  const Path path = choose(agreed);
  if (path != Path::native || parts_.device == nullptr || config_.require.native) return path;
  // A group that has failed says so in every call.
  if (parts_.group->aborted() != Code::ok) return path;
  return habit_.goes_below(agreed.coll, agreed.bytes()) ? Path::bounce : path;
}

Status NodeCommunicator::run(const Problem& problem) {
  const Status status = LaneCommunicator::run(problem);
  if (parts_.device != nullptr)
    habit_.note(problem.agreed.coll, problem.agreed.bytes(),
                parts_.group->summary().reaches == bit(shm::Reach::host));
  return status;
}

void NodeCommunicator::begin_in_any_order(uint64_t number, const Problem& problem,
                                          Request& request) {
  std::call_once(order_made_,
                 [&] { order_ = std::make_unique<StartOrder>(parts_.context, engine_); });
  order_->enlist(number, problem, request);
}

void NodeCommunicator::close() {
  drain();
  if (order_ != nullptr) order_->drain();
  order_.reset();
  parts_.device.reset();
  release_setup();
  parts_.close();
}

}  // namespace tutti
