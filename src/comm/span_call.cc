#include "comm/span_call.hpp"

#include "base/log.hpp"
#include "comm/fabric.hpp"
#include "engine/widening.hpp"
#include "sched/contract.hpp"
#include "shm/reduce.hpp"

namespace tutti {

namespace {

void reduce_two(const Reduction& self, void* to, const void* lower, const void* higher,
                size_t count) {
  static_cast<const shm::Reducer*>(self.context)->two(to, lower, higher, count);
}

constexpr uint64_t wide_alignment = 64;  // a cache line

}  // namespace

Agreed over_nodes(const Agreed& agreed) {
  Agreed wide = agreed;
  wide.wide = reduces(agreed.coll) && gains_by_fp32(agreed.op, agreed.dtype);
  return wide;
}

void SpanContext::fail(Status why) {
  if (failed.ok()) failed = why;
  // Ranks of this node that are in a group step, or come to one.
  if (node != nullptr) node->group->abort(why.code());
}

SpanCall::~SpanCall() {
  if (scratch_ != nullptr) memory::give_block(scratch_);
}

void SpanCall::bind() {
  const Agreed& agreed = problem_.agreed;
  const Local& local = problem_.local;
  ExecutorCall call;
  call.input = local.send;
  call.output = local.recv;
  call.scratch = scratch_;
  call.sequence = context_.sequence;
  call.reduction.op = agreed.op;
  call.reduction.dtype = agreed.dtype;
  call.reduction.function = reduce_two;
  call.reduction.context = const_cast<shm::Reducer*>(shm::find_reducer(agreed.op, agreed.dtype));
  if (agreed.wide) {
    call.wide = wide_arithmetic(agreed.op, agreed.dtype);
    call.wide.memory = scratch_ == nullptr ? nullptr : static_cast<char*>(scratch_) + wide_at_;
  }
  executor_->bind(call);
}

Status SpanCall::prepare() {
  TUTTI_TRY(context_.failed);
  if (problem_.local.error != Code::ok) return problem_.local.error;
  if (context_.device_possible)
    TUTTI_TRY(
        staging_.begin(problem_.agreed, context_.rank, context_.topology.nranks, problem_.local));
  if (scratch_bytes_ == 0) return {};
  scratch_ = memory::take_block(scratch_bytes_);
  if (scratch_ == nullptr) return Code::no_memory;
  return {};
}

Status SpanCall::start() {
  ++context_.sequence;
  auto plan = context_.plans->get(context_.choice(problem_.agreed), problem_);
  if (!plan.ok()) {
    context_.fail(plan.status());
    return plan.status();
  }
  executor_ = (*plan)->executor.get();
  const Schedule& schedule = *(*plan)->schedule;
  scratch_bytes_ = schedule.scratch_count * info(problem_.agreed.dtype).extent;
  if (schedule.wide_count != 0) {
    wide_at_ = (scratch_bytes_ + wide_alignment - 1) / wide_alignment * wide_alignment;
    scratch_bytes_ = wide_at_ + schedule.wide_count * sizeof(float);
  }
  if (Status status = prepare(); !status.ok()) {
    refuse(status);
    // A copy that has begun must end before its memory goes.
    if (!staging_.poll().finished()) {
      status_ = status;
      phase_ = Phase::copy_in;
      return {};
    }
    return status;
  }
  phase_ = Phase::copy_in;
  if (!staging_.needed()) begin_schedule();
  return {};
}

void SpanCall::refuse(Status why) {
  bind();
  executor_->refuse(why);
  context_.fail(why);
}

void SpanCall::begin_schedule() {
  bind();
  if (context_.groups != nullptr) context_.groups->bind(problem_.agreed);
  phase_ = Phase::schedule;
  (void)executor_->start();  // never fails
}

Poll SpanCall::finish(Status status) {
  phase_ = Phase::done;
  return status.ok() ? Poll::done() : Poll::failed(status);
}

Poll SpanCall::end_schedule(Status status) {
  if (!status.ok()) {
    context_.fail(status);
    // A peer that does not answer may still write.
    staging_.abandon();
    scratch_ = nullptr;
    return finish(status);
  }
  if (context_.rank == 0) context_.fabric->say_carrier(context_.name);
  if (!staging_.needed()) return finish({});
  if (Status out = staging_.begin_out(); !out.ok()) return finish(out);
  phase_ = Phase::copy_out;
  return poll();
}

Poll SpanCall::poll() {
  switch (phase_) {
    case Phase::copy_in: {
      const Poll copied = staging_.poll();
      if (!copied.finished()) return Poll::busy();
      if (!status_.ok()) return finish(status_);
      if (!copied.status().ok()) {
        refuse(copied.status());
        return finish(copied.status());
      }
      begin_schedule();
      [[fallthrough]];
    }
    case Phase::schedule: {
      const Poll run = executor_->poll();
      return run.finished() ? end_schedule(run.status()) : run;
    }
    case Phase::copy_out: {
      const Poll copied = staging_.poll();
      return copied.finished() ? finish(copied.status()) : copied;
    }
    case Phase::done:
      return Poll::done();
  }
  return Poll::failed(Code::internal);
}

void SpanCall::abort(Status why) {
  if (phase_ == Phase::copy_in && status_.ok()) {
    status_ = why;
    refuse(why);
  } else if (phase_ == Phase::schedule) {
    executor_->abort(why);
    context_.fail(why);
  }
}

Status SpanCall::check_peers() {
  if (phase_ != Phase::schedule || context_.node == nullptr) return {};
  for (const PeerProcess& process : context_.node->processes)
    if (!process.alive()) return Code::peer_lost;
  return {};
}

const char* SpanCall::phase() const {
  switch (phase_) {
    case Phase::copy_in:
      return "copying from the device";
    case Phase::schedule:
      return executor_->phase();
    case Phase::copy_out:
      return "copying to the device";
    case Phase::done:
      return "done";
  }
  return "";
}

std::string SpanCall::waiting_for() const {
  return phase_ == Phase::schedule ? executor_->waiting_for() : "the device";
}

}  // namespace tutti
