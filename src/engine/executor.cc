#include "engine/executor.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/log.hpp"

namespace tutti {

namespace {

bool is_message(const Step& step) {
  return step.kind == StepKind::send || step.kind == StepKind::recv;
}

// Which ranges a step of that kind uses.
bool reads_from(StepKind kind) {
  return kind != StepKind::recv;
}
bool writes_to(StepKind kind) {
  return kind != StepKind::send;
}

// An empty range lies anywhere: block offsets of the v-forms may be large where counts are zero.
bool in_bounds(const Schedule& schedule, const Ref& ref) {
  if (ref.count == 0) return true;
  uint64_t limit = 0;
  switch (ref.space) {
    case Space::input:
      limit = schedule.input_count;
      break;
    case Space::output:
      limit = schedule.output_count;
      break;
    case Space::scratch:
      limit = schedule.scratch_count;
      break;
    case Space::wide:
      limit = schedule.wide_count;
      break;
  }
  return ref.count <= limit && ref.offset <= limit - ref.count;
}

}  // namespace

Executor::Executor(Places places) : places_(std::move(places)) {
  const size_t nsteps = places_.schedule->steps.size();
  in_degrees_.resize(nsteps);
  missing_.resize(nsteps);
  ready_.reserve(nsteps);
  flight_.reserve(nsteps);
  next_begin_.assign(nsteps + 1, 0);
}

Result<std::unique_ptr<Executor>> Executor::open(Places places) {
  std::unique_ptr<Executor> executor(new Executor(std::move(places)));
  if (Status status = executor->check(); !status.ok()) return status;
  executor->count_edges();
  return executor;
}

// What is wrong with step number i, or nullptr.
const char* Executor::fault_of(uint32_t i) const {
  const Schedule& schedule = *places_.schedule;
  const Step& step = schedule.steps[i];
  if (uint64_t{step.after_begin} + step.after_count > schedule.after.size())
    return "its list of predecessors leaves the schedule";
  if (std::ranges::any_of(schedule.after_of(step), [i](uint32_t before) { return before >= i; }))
    return "it is not numbered behind its predecessors";
  if (is_message(step)) {
    const Transport* transport = places_.transport;
    if (transport == nullptr) return "it is a message, and there is no transport";
    if (step.peer < 0 || step.peer >= transport->nranks() || step.peer == transport->rank())
      return "its peer is no other rank";
    if (step.tag >> step_tag_bits != 0) return "its tag is too large";
  }
  if (step.kind == StepKind::group) {
    if (places_.groups == nullptr) return "it is a group step, and nothing here runs groups";
    if (step.peer < 0 || static_cast<size_t>(step.peer) >= schedule.groups.size())
      return "its group does not exist";
  }
  if ((reads_from(step.kind) && !in_bounds(schedule, step.from)) ||
      (writes_to(step.kind) && !in_bounds(schedule, step.to)) ||
      (step.kind == StepKind::reduce && !in_bounds(schedule, step.with)))
    return "a range leaves its space";
  if (writes_to(step.kind) && step.to.space == Space::input && step.to.count != 0)
    return "it writes the input";
  const bool local = step.kind == StepKind::copy || step.kind == StepKind::reduce;
  if (local && step.to.count != step.from.count) return "its ranges differ in length";
  if (step.kind == StepKind::reduce && step.with.count != step.from.count)
    return "its operands differ in length";
  const bool wide = step.to.space == Space::wide;
  if (step.kind == StepKind::reduce && step.to.count != 0 &&
      ((step.from.space == Space::wide) != wide || (step.with.space == Space::wide) != wide))
    return "its operands differ in width";
  return nullptr;
}

Status Executor::check() const {
  const Schedule& schedule = *places_.schedule;
  for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
    const char* fault = fault_of(i);
    if (fault == nullptr) continue;
    TUTTI_ERROR("engine", "schedule refused: step {} of {} (kind {}, peer {}): {}", i,
                schedule.steps.size(), static_cast<int>(schedule.steps[i].kind),
                schedule.steps[i].peer, fault);
    return Code::internal;
  }
  return {};
}

void Executor::count_edges() {
  const Schedule& schedule = *places_.schedule;
  const uint32_t nsteps = static_cast<uint32_t>(schedule.steps.size());
  for (uint32_t i = 0; i < nsteps; ++i) {
    in_degrees_[i] = schedule.steps[i].after_count;
    for (uint32_t before : schedule.after_of(schedule.steps[i])) ++next_begin_[before + 1];
  }
  for (uint32_t i = 0; i < nsteps; ++i) next_begin_[i + 1] += next_begin_[i];
  next_.resize(next_begin_[nsteps]);
  std::vector<uint32_t> fill(next_begin_.begin(), next_begin_.end() - 1);
  for (uint32_t i = 0; i < nsteps; ++i)
    for (uint32_t before : schedule.after_of(schedule.steps[i])) next_[fill[before]++] = i;
  // A receive that is posted before its message comes needs no copy of it: receives go first.
  auto add_roots = [&](bool receives) {
    for (uint32_t i = 0; i < nsteps; ++i)
      if (in_degrees_[i] == 0 && (schedule.steps[i].kind == StepKind::recv) == receives)
        roots_.push_back(i);
  };
  add_roots(true);
  add_roots(false);
}

const void* Executor::source(const Ref& ref) const {
  if (ref.space != Space::input) return target(ref);
  if (ref.count == 0) return call_.input;
  return static_cast<const char*>(call_.input) + ref.offset * places_.extent_bytes;
}

void* Executor::target(const Ref& ref) const {
  void* base = call_.output;
  if (ref.space == Space::scratch) base = call_.scratch;
  if (ref.space == Space::wide) base = call_.wide.memory;
  if (ref.count == 0) return base;
  return static_cast<char*>(base) + bytes_of({ref.space, 0, ref.offset});
}

uint64_t Executor::wire_tag(const Step& step) const {
  const uint64_t sequence = call_.sequence & ((uint64_t{1} << sequence_bits) - 1);
  return sequence << step_tag_bits | step.tag;
}

Status Executor::start() {
  if (places_.schedule->wide_count != 0 && call_.wide.memory == nullptr) {
    TUTTI_ERROR("engine",
                "a schedule keeps {} elements as fp32, and the call has no place for them",
                places_.schedule->wide_count);
    return Code::internal;
  }
  std::ranges::copy(in_degrees_, missing_.begin());
  ready_.clear();
  ready_head_ = 0;
  flight_.clear();
  finished_ = 0;
  status_ = {};
  aborted_ = false;
  for (uint32_t step : roots_) ready_.push_back(step);
  run_ready();
  return {};
}

Poll Executor::poll() {
  const size_t nsteps = missing_.size();
  if (places_.transport != nullptr) places_.transport->progress();
  // A finished step may have let messages go whose answers are here already: look again.
  while (finished_ != nsteps && test_flight()) run_ready();
  if (finished_ != nsteps) return Poll::busy();
  if (status_.ok() && places_.transport != nullptr && !places_.transport->quiet())
    return Poll::busy();
  return end();
}

Poll Executor::end() const {
  return status_.ok() ? Poll::done() : Poll::failed(status_);
}

Poll Executor::look_at(const Flight& flight) {
  switch (flight.kind) {
    case Flight::Kind::transfer:
      return places_.transport->test(flight.handle);
    case Flight::Kind::copy:
      return call_.copies->poll(flight.handle);
    case Flight::Kind::group:
      return flight.group->poll();
  }
  return Poll::failed(Code::internal);
}

// Looks once at everything in flight; says whether anything finished. The order of posting is kept.
// finish() may post receives, which join at the end meanwhile, and fail() walks the whole list: an
// entry that was moved or has finished is emptied at once.
bool Executor::test_flight() {
  const size_t looked_at = flight_.size();
  size_t kept = 0;
  for (size_t i = 0; i < looked_at; ++i) {
    const Flight flight = flight_[i];
    const Poll poll = look_at(flight);
    flight_[i] = {};
    if (!poll.finished()) {
      flight_[kept++] = flight;
      continue;
    }
    if (!poll.status().ok()) fail(poll.status());
    finish(flight.step);
  }
  const bool any = kept != looked_at;
  for (size_t i = looked_at; any && i < flight_.size(); ++i) flight_[kept++] = flight_[i];
  if (any) flight_.resize(kept);
  return any;
}

void Executor::make_ready(uint32_t step) {
  // Receives are posted at once: the sooner, the fewer messages come unexpected. After a failure
  // they may end at once too, and a chain of them must not become a chain of calls.
  if (status_.ok() && places_.schedule->steps[step].kind == StepKind::recv) {
    post(step);
  } else {
    ready_.push_back(step);
  }
}

void Executor::run_ready() {
  while (ready_head_ < ready_.size()) run_step(ready_[ready_head_++]);
}

void Executor::run_step(uint32_t step_number) {
  const Step& step = places_.schedule->steps[step_number];
  switch (step.kind) {
    case StepKind::send:
    case StepKind::recv:
      post(step_number);
      return;
    case StepKind::group:
      start_group(step_number);
      return;
    case StepKind::copy:
      if (!status_.ok()) break;
      if (on_device(step.from) || on_device(step.to)) return start_copy(step_number);
      copy(step);
      break;
    case StepKind::reduce: {
      const Reduction& reduction =
          step.to.space == Space::wide ? call_.wide.reduction : call_.reduction;
      if (status_.ok())
        reduction.function(reduction, target(step.to), source(step.from), source(step.with),
                           step.from.count);
      break;
    }
  }
  finish(step_number);
}

void Executor::copy(const Step& step) {
  const void* from = source(step.from);
  void* to = target(step.to);
  const bool widens = step.to.space == Space::wide, narrows = step.from.space == Space::wide;
  if (widens == narrows) {
    // In place, a copy from input to output may have nothing to do.
    if (from != to) std::memmove(to, from, bytes_of(step.from));
  } else if (widens) {
    call_.wide.widen(to, from, step.from.count);
  } else {
    call_.wide.narrow(to, from, step.from.count);
  }
}

bool Executor::on_device(const Ref& ref) const {
  if (ref.count == 0) return false;
  return (ref.space == Space::input && call_.input_on_device) ||
         (ref.space == Space::output && call_.output_on_device);
}

void Executor::start_copy(uint32_t step_number) {
  const Step& step = places_.schedule->steps[step_number];
  const void* from = source(step.from);
  void* to = target(step.to);
  uint64_t handle = 0;
  const Status status =
      from == to ? Status{} : call_.copies->start(to, from, bytes_of(step.from), &handle);
  if (status.ok() && from != to) {
    flight_.push_back({step_number, Flight::Kind::copy, handle, nullptr});
    return;
  }
  if (!status.ok()) fail(status);
  finish(step_number);
}

void Executor::post(uint32_t step_number) {
  const Step& step = places_.schedule->steps[step_number];
  Transport& transport = *places_.transport;
  const uint64_t tag = wire_tag(step);
  if (step.kind == StepKind::send && !status_.ok()) {
    transport.send_error(step.peer, tag, status_);
    finish(step_number);
    return;
  }
  Result<Transport::Handle> handle =
      step.kind == StepKind::send
          ? transport.send(step.peer, tag, source(step.from), bytes_of(step.from))
          : transport.recv(step.peer, tag, target(step.to), bytes_of(step.to));
  if (handle.ok()) {
    flight_.push_back({step_number, Flight::Kind::transfer, *handle, nullptr});
    return;
  }
  fail(handle.status());
  // The peer must not wait for what could not be sent; if it is lost, this does nothing.
  if (step.kind == StepKind::send) transport.send_error(step.peer, tag, status_);
  finish(step_number);
}

// After a failure the group is still entered, told of it beforehand: only so do its members learn, and none of
// them can finish on what this rank does not have.
void Executor::start_group(uint32_t step_number) {
  const Schedule& schedule = *places_.schedule;
  const Step& step = schedule.steps[step_number];
  Result<Operation*> operation =
      places_.groups->prepare(step_number, step, schedule.groups[static_cast<size_t>(step.peer)],
                              source(step.from), target(step.to));
  Status status = operation.status();
  if (operation.ok()) {
    if (!status_.ok()) (*operation)->abort(status_);
    status = (*operation)->start();
  }
  if (status.ok()) {
    flight_.push_back({step_number, Flight::Kind::group, 0, *operation});
    return;
  }
  fail(status);
  finish(step_number);
}

void Executor::finish(uint32_t step) {
  ++finished_;
  for (uint32_t i = next_begin_[step]; i < next_begin_[step + 1]; ++i)
    if (--missing_[next_[i]] == 0) make_ready(next_[i]);
}

void Executor::fail(Status why) {
  if (!status_.ok()) return;
  status_ = why;
  for (const Flight& flight : flight_)
    if (flight.group != nullptr) flight.group->abort(why);
}

void Executor::refuse(Status why) {
  for (const Step& step : places_.schedule->steps)
    if (step.kind == StepKind::send) places_.transport->send_error(step.peer, wire_tag(step), why);
}

void Executor::abort(Status why) {
  const Schedule& schedule = *places_.schedule;
  if (aborted_) return;
  aborted_ = true;
  fail(why);
  if (finished_ == schedule.steps.size()) return;  // what it has sent does not leave
  // Peers first: withdrawing may take a while. A step is still to come exactly when a predecessor
  // is missing; what is ready has been run by every poll.
  auto send_error = [&](const Step& step) {
    if (step.kind == StepKind::send)
      places_.transport->send_error(step.peer, wire_tag(step), status_);
  };
  for (uint32_t i = 0; i < schedule.steps.size(); ++i)
    if (missing_[i] != 0) send_error(schedule.steps[i]);
  size_t kept = 0;
  for (const Flight& flight : flight_) {
    if (flight.kind != Flight::Kind::transfer) {
      flight_[kept++] = flight;  // ends by itself: a group was told, a copy waits for nobody
    } else if (places_.transport->cancel(flight.handle)) {
      send_error(schedule.steps[flight.step]);
    }
  }
  flight_.resize(kept);
  // Nothing is left to run but those. Their successors must not start.
  std::ranges::fill(missing_, ~uint32_t{0});
  finished_ = schedule.steps.size() - kept;
}

const char* Executor::phase() const {
  if (aborted_) return "withdrawing after an error";
  if (!status_.ok()) return "running out after an error";
  if (flight_.empty()) return "local steps";
  const Flight& oldest = flight_.front();
  if (oldest.kind == Flight::Kind::group) return oldest.group->phase();
  if (oldest.kind == Flight::Kind::copy) return "copying to or from the device";
  return places_.schedule->steps[oldest.step].kind == StepKind::send ? "send" : "receive";
}

std::string Executor::waiting_for() const {
  std::set<int> ranks;
  std::string text;
  for (const Flight& flight : flight_) {
    if (flight.kind == Flight::Kind::copy) {
      if (text.empty()) text = "the device";
    } else if (flight.kind == Flight::Kind::group) {
      std::string inner = flight.group->waiting_for();
      if (!inner.empty()) text += (text.empty() ? "" : ", ") + inner;
    } else {
      ranks.insert(places_.schedule->steps[flight.step].peer);
    }
  }
  for (int rank : ranks) {
    if (!text.empty()) text += ", ";
    text += places_.rank_text ? places_.rank_text(rank) : tutti::text("rank {}", rank);
  }
  return text;
}

}  // namespace tutti
