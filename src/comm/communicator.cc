#include "comm/communicator.hpp"

#include <algorithm>
#include <optional>

#include "base/config.hpp"
#include "base/log.hpp"
#include "comm/node_call.hpp"
#include "comm/process.hpp"
#include "comm/setup.hpp"
#include "shm/reduce.hpp"

namespace tutti {

namespace {

// A call that begins when its turn in the lane comes, native or below: whichever the communicator
// has turned out to be by then.
class QueuedCall;

bool reduces(Coll coll) {
  return coll == Coll::allreduce || coll == Coll::reduce_scatter ||
         coll == Coll::reduce_scatter_block || coll == Coll::scan || coll == Coll::exscan;
}

// Which calls tutti performs itself on one node. In class H only what is never slower than the base
// (law 6); in class N whatever can, because the alternative for a device buffer is a bounce.
bool wanted_on_node(Coll coll, bool device_possible) {
  return coll == Coll::allreduce || (device_possible && shm::NodeExchange::handles(coll));
}
bool native_on_node(const Agreed& agreed, bool device_possible) {
  if (reduces(agreed.coll) && !shm::reducible(agreed.op, agreed.dtype)) return false;
  return wanted_on_node(agreed.coll, device_possible);
}

class NodeCommunicator final : public Communicator {
 public:
  NodeCommunicator(const BaseComm& base, Engine& engine, const Config& config)
      : base_(base), engine_(engine), config_(config), process_(Process::get(config)) {}

  void begin_setup();

  bool settled() const override { return settled_.load(std::memory_order_acquire); }
  Status settle() override;
  bool wants(Coll coll) const override;
  Path choose(const Agreed& agreed) const override;
  Status run(const Problem& problem) override;
  Status start(const Problem& problem, Below below, Request& request) override;
  Status start_below(Below below, Request& request) override;
  void close() override;
  const std::string& describe() const override { return verdict_; }

  NodeContext& context() { return context_; }
  void conclude_setup();

 private:
  friend class QueuedCall;
  QueuedCall& free_call();

  BaseComm base_;
  Engine& engine_;
  const Config& config_;
  Process& process_;
  Lane lane_;
  std::unique_ptr<Setup> setup_;
  Request setup_request_;
  std::unique_ptr<shm::NodeGroup> group_;
  std::unique_ptr<shm::NodeAllreduce> allreduce_;
  std::unique_ptr<shm::NodeExchange> exchange_;
  std::unique_ptr<DeviceGroup> device_;
  NodeContext context_;
  std::vector<std::unique_ptr<QueuedCall>> calls_;
  std::string verdict_ = "set-up has not finished";
  bool any_device_possible_ = false;
  bool reaped_ = false;
  std::atomic<bool> settled_{false};
};

class QueuedCall final : public Operation {
 public:
  explicit QueuedCall(NodeCommunicator& comm) : comm_(comm) {}

  bool busy() const { return busy_.load(std::memory_order_acquire); }
  void assign_native(const Problem& problem, Communicator::Below below) {
    busy_.store(true, std::memory_order_relaxed);
    problem_ = problem;
    // The caller's arrays end with its call.
    keep(problem_.agreed.counts, counts_);
    keep(problem_.local.send_displs, send_displs_);
    keep(problem_.local.recv_displs, recv_displs_);
    keep(problem_.local.send_counts, send_counts_);
    keep(problem_.local.recv_counts, recv_counts_);
    below_ = std::move(below);
    force_below_ = false;
  }
  void assign_below(Communicator::Below below) {
    busy_.store(true, std::memory_order_relaxed);
    below_ = std::move(below);
    force_below_ = true;
  }

  Status start() override {
    native_.reset();
    if (!force_below_ && comm_.choose(problem_.agreed) == Path::native) {
      native_.emplace(comm_.context(), problem_);
      return finish_if_bad(native_->start());
    }
    return finish_if_bad(below_.begin());
  }
  Poll poll() override {
    Poll poll = native_.has_value() ? native_->poll() : below_.test();
    if (poll.finished()) busy_.store(false, std::memory_order_release);
    return poll;
  }
  void abort(Status why) override {
    if (native_.has_value()) native_->abort(why);
  }
  // Until its turn comes a call of an unsettled communicator may yet have to begin below.
  bool needs_base() const override {
    if (native_.has_value()) return false;
    return force_below_ || comm_.choose(problem_.agreed) != Path::native;
  }
  const char* phase() const override {
    return native_.has_value() ? native_->phase() : "in the MPI below";
  }
  std::string waiting_for() const override {
    return native_.has_value() ? native_->waiting_for() : "the MPI below";
  }

 private:
  Status finish_if_bad(Status status) {
    if (!status.ok()) busy_.store(false, std::memory_order_release);
    return status;
  }

  static void keep(std::span<const uint64_t>& span, std::vector<uint64_t>& copy) {
    copy.assign(span.begin(), span.end());
    span = copy;
  }

  NodeCommunicator& comm_;
  Problem problem_;
  std::vector<uint64_t> counts_;
  std::vector<uint64_t> send_displs_;
  std::vector<uint64_t> recv_displs_;
  std::vector<uint64_t> send_counts_;
  std::vector<uint64_t> recv_counts_;
  Communicator::Below below_;
  std::optional<NodeCall> native_;
  std::atomic<bool> busy_{false};
  bool force_below_ = false;
};

void NodeCommunicator::begin_setup() {
  const bool one_node = !base_.nodes.empty() && std::all_of(base_.nodes.begin(), base_.nodes.end(),
                                                            [](int32_t node) { return node == 0; });
  if (!one_node || base_.nranks > shm::max_members || base_.nranks < 2) {
    verdict_ = base_.nranks < 2      ? "one rank: the MPI below"
               : base_.nodes.empty() ? "ranks of unknown nodes: the MPI below"
               : !one_node           ? "several nodes: the MPI below"
                                     : "more ranks on a node than the board holds: the MPI below";
    // The ranks of other nodes may see devices that this one does not.
    any_device_possible_ = true;
    reaped_ = true;
    settled_.store(true, std::memory_order_release);
    return;
  }
  setup_ = std::make_unique<Setup>(base_, process_, config_);
  setup_request_.operation = setup_.get();
  setup_request_.token = this;
  setup_request_.finished = [](Request* request, Status) {
    static_cast<NodeCommunicator*>(request->token)->conclude_setup();
    request->done.store(true, std::memory_order_release);
  };
  engine_.submit(lane_, setup_request_);
}

void NodeCommunicator::conclude_setup() {
  any_device_possible_ = setup_->any_device_possible();
  group_ = setup_->take_group();
  if (group_ != nullptr) {
    const auto oneshot_limit_bytes = static_cast<size_t>(
        config_.shm_oneshot_bytes.value_or(shm::NodeAllreduce::oneshot_limit(base_.nranks)));
    allreduce_ = std::make_unique<shm::NodeAllreduce>(*group_, oneshot_limit_bytes);
    exchange_ = std::make_unique<shm::NodeExchange>(*group_);
    if (any_device_possible_)
      device_ =
          std::make_unique<DeviceGroup>(*group_, config_, base_.name, process_.gpu_linger_ns());
    context_.group = group_.get();
    context_.allreduce = allreduce_.get();
    context_.exchange = exchange_.get();
    context_.device = device_.get();
    context_.process = &process_;
    for (int r = 0; r < base_.nranks; ++r) {
      const SetupRecord& record = setup_->record(r);
      context_.members.push_back(
          text("rank {} (host {}, pid {})", r, record.host, record.segment.pid));
      context_.processes.emplace_back(record.segment.pid);
    }
    verdict_ = any_device_possible_ ? "one node, devices possible: shared memory and kernels"
                                    : "one node, host memory: shared memory";
  } else {
    verdict_ = setup_->reason() + ": the MPI below";
  }
  settled_.store(true, std::memory_order_release);
}

Status NodeCommunicator::settle() {
  if (!settled()) {
    Status status = engine_.wait(setup_request_);
    if (!status.ok()) return status;
  }
  if (!reaped_) {
    setup_->reap();
    reaped_ = true;
  }
  return {};
}

bool NodeCommunicator::wants(Coll coll) const {
  return group_ != nullptr && wanted_on_node(coll, any_device_possible_);
}

Path NodeCommunicator::choose(const Agreed& agreed) const {
  if (group_ != nullptr && native_on_node(agreed, any_device_possible_)) return Path::native;
  return any_device_possible_ ? Path::bounce : Path::below;
}

Status NodeCommunicator::run(const Problem& problem) {
  NodeCall call(context_, problem);
  CallRecord record;
  record.coll = problem.agreed.coll;
  record.sequence = group_->sequence() + 1;
  return engine_.run(lane_, call, record);
}

QueuedCall& NodeCommunicator::free_call() {
  for (auto& call : calls_)
    if (!call->busy()) return *call;
  calls_.push_back(std::make_unique<QueuedCall>(*this));
  return *calls_.back();
}

Status NodeCommunicator::start(const Problem& problem, Below below, Request& request) {
  QueuedCall& call = free_call();
  call.assign_native(problem, std::move(below));
  request.operation = &call;
  request.record.coll = problem.agreed.coll;
  engine_.submit(lane_, request);
  return {};
}

Status NodeCommunicator::start_below(Below below, Request& request) {
  QueuedCall& call = free_call();
  call.assign_below(std::move(below));
  request.operation = &call;
  engine_.submit(lane_, request);
  return {};
}

void NodeCommunicator::close() {
  engine_.drain(lane_);
  device_.reset();
  if (setup_ != nullptr) setup_->release();
  context_ = NodeContext{};
  allreduce_.reset();
  exchange_.reset();
  group_.reset();
}

}  // namespace

bool may_want(const Job& job, Coll coll) {
  return wanted_on_node(coll, job.devices);
}

std::unique_ptr<Communicator> Communicator::open(const BaseComm& base, Engine& engine,
                                                 const Config& config) {
  auto comm = std::make_unique<NodeCommunicator>(base, engine, config);
  comm->begin_setup();
  return comm;
}

}  // namespace tutti
