#include "comm/span_call.hpp"

#include <algorithm>
#include <array>

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

// Where ranks may have devices, long vectors are done in segments, so that staging them takes pinned memory
// of this order: 64 MiB in one piece took 77-99 ms between two one-GPU nodes, most of it to have memory
// registered anew, where 16 MiB took 4.5.
constexpr uint64_t segment_bytes = 16 << 20;

bool has_segments(Coll coll) {
  return coll == Coll::allreduce || coll == Coll::reduce || coll == Coll::bcast;
}

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
  call.copies = &copies_;
  call.input_on_device = local.send_on_device;
  call.output_on_device = local.recv_on_device;
  executor_->bind(call);
}

// Where the ends lie that this rank has: its schedule is staged for those on a device.
void SpanCall::look_at_buffers() {
  if (!context_.device_possible || !memory::live()) return;
  Local& local = whole_.local;
  const Extent size = extent(whole_, context_.rank, context_.topology.nranks);
  const std::array<const void*, 2> pointers = {size.input != 0 ? local.send : nullptr,
                                               size.output != 0 ? local.recv : nullptr};
  std::array<memory::Place, 2> places{};
  for (size_t i = 0; i < pointers.size(); ++i)
    if (pointers[i] != nullptr) memory::look(&pointers[i], 1, &places[i]);
  local.send_on_device = places[0].on_device;
  local.recv_on_device = places[1].on_device;
  copies_.bind(places[places[0].on_device ? 0 : 1].device);
}

Status SpanCall::prepare() {
  TUTTI_TRY(context_.failed);
  if (problem_.local.error != Code::ok) return problem_.local.error;
  if (scratch_bytes_ == 0) return {};
  scratch_ = memory::take_block(scratch_bytes_);
  if (scratch_ == nullptr) return Code::no_memory;
  return {};
}

// The next elements of the vector, or all there is.
void SpanCall::cut_segment() {
  problem_ = whole_;
  Agreed& agreed = problem_.agreed;
  Local& local = problem_.local;
  const uint64_t extent = info(agreed.dtype).extent;
  if (context_.device_possible && has_segments(agreed.coll))
    agreed.count = std::min(agreed.count - behind_, std::max<uint64_t>(1, segment_bytes / extent));
  if (local.send != nullptr) local.send = static_cast<const char*>(local.send) + behind_ * extent;
  if (local.recv != nullptr) local.recv = static_cast<char*>(local.recv) + behind_ * extent;
  behind_ += agreed.count;
}

Status SpanCall::start() {
  behind_ = 0;
  if (whole_.local.error == Code::ok) look_at_buffers();
  return start_segment();
}

Status SpanCall::start_segment() {
  ++context_.sequence;
  cut_segment();
  auto plan = context_.plans->get(context_.choice(whole_.agreed), problem_);
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
    return status;
  }
  bind();
  if (context_.groups != nullptr)
    context_.groups->bind(problem_.agreed, context_.device_possible && scratch_ != nullptr &&
                                               memory::is_registered(scratch_));
  runs_ = true;
  return executor_->start();
}

void SpanCall::refuse(Status why) {
  bind();
  executor_->refuse(why);
  context_.fail(why);
}

Poll SpanCall::end(Status status) {
  runs_ = false;
  if (!status.ok()) {
    context_.fail(status);
    // A peer that does not answer may still write.
    scratch_ = nullptr;
    return Poll::failed(status);
  }
  if (behind_ < whole_.agreed.count) {
    if (scratch_ != nullptr) memory::give_block(scratch_);
    scratch_ = nullptr;
    const Status next = start_segment();
    return next.ok() ? Poll::busy() : Poll::failed(next);
  }
  if (context_.rank == 0) context_.fabric->say_carrier(context_.name);
  return Poll::done();
}

Poll SpanCall::poll() {
  if (!runs_) return Poll::done();
  const Poll run = executor_->poll();
  return run.finished() ? end(run.status()) : run;
}

void SpanCall::abort(Status why) {
  if (!runs_) return;
  executor_->abort(why);
  context_.fail(why);
}

Status SpanCall::check_peers() {
  if (!runs_ || context_.node == nullptr) return {};
  for (const PeerProcess& process : context_.node->processes)
    if (!process.alive()) return Code::peer_lost;
  return {};
}

const char* SpanCall::phase() const {
  return runs_ ? executor_->phase() : "done";
}

std::string SpanCall::waiting_for() const {
  return runs_ ? executor_->waiting_for() : "";
}

}  // namespace tutti
