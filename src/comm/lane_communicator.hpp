// LaneCommunicator: what communicators of one node and of several share: set-up first, calls queued
// behind it in their order, each native or below as the communicator has turned out to be by then.
//
// Native is the operation of one native call: constructible from (Native::Context&, const Problem&).
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "comm/communicator.hpp"
#include "comm/process.hpp"
#include "comm/setup.hpp"

namespace tutti {

template <class Native>
class LaneCommunicator : public Communicator {
 public:
  bool settled() const override { return settled_.load(std::memory_order_acquire); }
  Status settle() override;
  bool wants(Coll coll) const override { return !lost_.ok() || (ready_ && wants_here(coll)); }
  Path choose(const Agreed& agreed) const override;
  Status run(const Problem& problem) override;
  Status start(const Problem& problem, Below below, Request& request) override;
  Status start_below(Below below, Request& request) override;
  const std::string& describe() const override { return verdict_; }

  // No set-up: everything goes below.
  void stay_below(std::string why);
  void begin_setup(std::unique_ptr<Setup> setup);

 protected:
  LaneCommunicator(const BaseComm& base, Engine& engine, const Config& config)
      : base_(base), engine_(engine), config_(config), process_(Process::get(config)) {}

  // Set-up has ended well: takes what it made and returns the verdict for describe().
  virtual std::string take_setup(Setup& setup) = 0;
  // Whether calls of that kind are native here; where wants_here() denies none is. Pure functions of
  // agreed facts.
  virtual bool wants_here(Coll coll) const = 0;
  virtual bool takes(const Agreed& agreed) const = 0;
  virtual typename Native::Context& context() = 0;
  virtual uint64_t next_sequence() const = 0;
  // Waits for pending calls; the slots are given back by release_setup().
  void drain() { engine_.drain(lane_); }
  void release_setup() {
    if (setup_ != nullptr) setup_->release();
  }

  BaseComm base_;
  Engine& engine_;
  const Config& config_;
  Process& process_;
  bool any_device_possible_ = false;

 private:
  class QueuedCall;
  void conclude_setup();
  QueuedCall& free_call();

  Lane lane_;
  std::unique_ptr<Setup> setup_;
  Request setup_request_;
  std::vector<std::unique_ptr<QueuedCall>> calls_;
  std::string verdict_ = "set-up has not finished";
  // What set-up ended with where it made nothing and going below is no answer: its end was not
  // agreed, or TUTTI_REQUIRE forbids it. Every call that could be native ends with it.
  Status lost_;
  bool ready_ = false;
  bool reaped_ = false;
  std::atomic<bool> settled_{false};
};

// A call that begins when its turn in the lane comes.
template <class Native>
class LaneCommunicator<Native>::QueuedCall final : public Operation {
 public:
  explicit QueuedCall(LaneCommunicator& comm) : comm_(comm) {}

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
      if (!comm_.lost_.ok()) return finish_if_bad(comm_.lost_);
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
  Status check_peers() override { return native_.has_value() ? native_->check_peers() : Status(); }
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

  LaneCommunicator& comm_;
  Problem problem_;
  std::vector<uint64_t> counts_;
  std::vector<uint64_t> send_displs_;
  std::vector<uint64_t> recv_displs_;
  std::vector<uint64_t> send_counts_;
  std::vector<uint64_t> recv_counts_;
  Communicator::Below below_;
  std::optional<Native> native_;
  std::atomic<bool> busy_{false};
  bool force_below_ = false;
};

template <class Native>
void LaneCommunicator<Native>::stay_below(std::string why) {
  verdict_ = std::move(why) + ": the MPI below";
  // The ranks of other nodes may see devices that this one does not.
  any_device_possible_ = true;
  reaped_ = true;
  settled_.store(true, std::memory_order_release);
}

template <class Native>
void LaneCommunicator<Native>::begin_setup(std::unique_ptr<Setup> setup) {
  setup_ = std::move(setup);
  setup_request_.operation = setup_.get();
  setup_request_.token = this;
  setup_request_.finished = [](Request* request, Status) {
    static_cast<LaneCommunicator*>(request->token)->conclude_setup();
    request->done.store(true, std::memory_order_release);
  };
  engine_.submit(lane_, setup_request_);
}

template <class Native>
void LaneCommunicator<Native>::conclude_setup() {
  any_device_possible_ = setup_->any_device_possible();
  if (setup_->ready()) {
    verdict_ = take_setup(*setup_);
    ready_ = true;
  } else {
    verdict_ = setup_->reason() + ": the MPI below";
    lost_ = setup_->lost();
    if (!lost_.ok()) verdict_ = setup_->reason() + ": every call ends with this error";
  }
  settled_.store(true, std::memory_order_release);
}

template <class Native>
Status LaneCommunicator<Native>::settle() {
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

template <class Native>
Path LaneCommunicator<Native>::choose(const Agreed& agreed) const {
  if (!lost_.ok() || (ready_ && takes(agreed))) return Path::native;
  return any_device_possible_ ? Path::bounce : Path::below;
}

template <class Native>
Status LaneCommunicator<Native>::run(const Problem& problem) {
  if (!lost_.ok()) return lost_;
  Native call(context(), problem);
  CallRecord record;
  record.coll = problem.agreed.coll;
  record.sequence = next_sequence();
  return engine_.run(lane_, call, record);
}

template <class Native>
typename LaneCommunicator<Native>::QueuedCall& LaneCommunicator<Native>::free_call() {
  for (auto& call : calls_)
    if (!call->busy()) return *call;
  calls_.push_back(std::make_unique<QueuedCall>(*this));
  return *calls_.back();
}

template <class Native>
Status LaneCommunicator<Native>::start(const Problem& problem, Below below, Request& request) {
  QueuedCall& call = free_call();
  call.assign_native(problem, std::move(below));
  request.operation = &call;
  request.record.coll = problem.agreed.coll;
  engine_.submit(lane_, request);
  return {};
}

template <class Native>
Status LaneCommunicator<Native>::start_below(Below below, Request& request) {
  QueuedCall& call = free_call();
  call.assign_below(std::move(below));
  request.operation = &call;
  engine_.submit(lane_, request);
  return {};
}

}  // namespace tutti
