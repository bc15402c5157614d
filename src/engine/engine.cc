#include "engine/engine.hpp"

#include <sched.h>

#include <chrono>

#include "base/log.hpp"

namespace tutti {

namespace {

// Polls before the first idle turn: about 0.3 us, the time within which a peer that is already
// there answers. Driving the base earlier would cost every small call its 5 to 32 ns a turn.
constexpr uint32_t spins_before_idle = 64;
// The same where ranks outnumber cores: the peer may be waiting for this very core.
constexpr uint32_t spins_before_yield = 2;
// Yields between drives of the base there: its own idle turn may yield too, and each such switch is one in
// which this rank does not see that its peers have come.
constexpr uint32_t yields_between_base = 8;
// How often a long call asks whether the peers it waits for still live.
constexpr uint64_t peer_look_ns = 100'000'000;

// Idle turns between looks at the clock.
constexpr uint32_t turns_between_looks = 1024;

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

bool Engine::try_enter() {
  if (hooks_.single_threaded) {
    if (inside_.load(std::memory_order_relaxed)) return false;
    inside_.store(true, std::memory_order_relaxed);
    return true;
  }
  return !inside_.exchange(true, std::memory_order_acquire);
}

void Engine::enter() {
  while (!try_enter()) sched_yield();
}

void Engine::leave() {
  inside_.store(false, std::memory_order_release);
}

void Engine::watch(Operation& operation, CallRecord& record) {
  const uint64_t now = now_ns();
  if (record.entry_ns == 0) {
    record.entry_ns = now;
    record.next_look_ns = now + peer_look_ns;
    return;
  }
  if (now >= record.next_look_ns) {
    record.next_look_ns = now + peer_look_ns;
    if (Status status = operation.check_peers(); !status.ok()) {
      TUTTI_ERROR("engine", "{} number {}: a peer has died in phase {}: {}", name(record.coll),
                  record.sequence, operation.phase(), operation.waiting_for());
      operation.abort(status);
      return;
    }
  }
  const uint64_t waited_ns = now - record.entry_ns;
  if (hooks_.fail_after_ns != 0 && waited_ns > hooks_.fail_after_ns) {
    TUTTI_ERROR("engine", "{} number {} ended after {:.1f} s in phase {}: missing {}",
                name(record.coll), record.sequence, static_cast<double>(waited_ns) * 1e-9,
                operation.phase(), operation.waiting_for());
    operation.abort(Code::timeout);
    return;
  }
  if (hooks_.warn_after_ns != 0 && waited_ns > hooks_.warn_after_ns && !record.warned) {
    record.warned = true;
    TUTTI_WARN("engine", "{} number {} has waited {:.1f} s in phase {} for {}", name(record.coll),
               record.sequence, static_cast<double>(waited_ns) * 1e-9, operation.phase(),
               operation.waiting_for());
  }
}

void Engine::idle(Operation* operation, CallRecord& record, uint32_t turn) {
  if (any_pending()) progress();
  if (hooks_.base_progress != nullptr &&
      (!hooks_.oversubscribed || turn % yields_between_base == 0))
    hooks_.base_progress();
  if (hooks_.oversubscribed) sched_yield();
  // The first look only notes the time, so that a call which ends soon reads no clock.
  if (operation != nullptr && turn % turns_between_looks == 0) watch(*operation, record);
}

Status Engine::run(Lane& lane, Operation& operation, CallRecord& record) {
  if (!lane.empty()) {
    Request request;
    request.operation = &operation;
    request.record = record;
    submit(lane, request);
    return wait(request);
  }
  TUTTI_TRY(operation.start());
  const uint32_t spins = hooks_.oversubscribed ? spins_before_yield : spins_before_idle;
  for (uint32_t spin = 0; spin < spins; ++spin) {
    Poll poll = operation.poll();
    if (poll.finished()) return poll.status();
    cpu_relax();
  }
  for (uint32_t turn = 1;; ++turn) {
    Poll poll = operation.poll();
    if (poll.finished()) return poll.status();
    idle(&operation, record, turn);
  }
}

void Engine::submit(Lane& lane, Request& request) {
  request.lane = &lane;
  request.next = nullptr;
  enter();
  const bool first = lane.head_.load(std::memory_order_relaxed) == nullptr;
  if (first) {
    lane.head_.store(&request, std::memory_order_release);
    if (!lane.active_) {
      lane.active_ = true;
      lane.next_active_ = active_;
      active_ = &lane;
    }
  } else {
    lane.tail_->next = &request;
  }
  lane.tail_ = &request;
  const bool was_idle = pending_.fetch_add(1, std::memory_order_relaxed) == 0;
  if (was_idle && hooks_.pending != nullptr) hooks_.pending(true);
  // Begin at once: peers may be waiting for this rank's header, and the program may compute next.
  if (first) progress_lane(lane, true);
  leave();
}

Status Engine::wait(Request& request) {
  for (uint32_t turn = 1; !request.done.load(std::memory_order_acquire); ++turn) {
    progress();
    if (request.done.load(std::memory_order_acquire)) break;
    CallRecord unused;
    if (turn > spins_before_idle)
      idle(nullptr, unused, turn);
    else
      cpu_relax();
  }
  return request.status;
}

void Engine::drain(Lane& lane) {
  for (uint32_t turn = 1; !lane.empty(); ++turn) {
    progress();
    CallRecord unused;
    idle(nullptr, unused, turn);
  }
  // The lane may go now: take it off the list that progress() walks.
  enter();
  for (Lane** link = &active_; *link != nullptr; link = &(*link)->next_active_) {
    if (*link != &lane) continue;
    *link = lane.next_active_;
    lane.next_active_ = nullptr;
    lane.active_ = false;
    break;
  }
  leave();
}

void Engine::finish_head(Lane& lane, Status status) {
  Request* request = lane.head_.load(std::memory_order_relaxed);
  lane.head_.store(request->next, std::memory_order_release);
  if (request->next == nullptr) lane.tail_ = nullptr;
  request->status = status;
  if (pending_.fetch_sub(1, std::memory_order_relaxed) == 1 && hooks_.pending != nullptr)
    hooks_.pending(false);
  void (*finished)(Request*, Status) = request->finished;
  // The last touch of a blocking request: its owner may return and reuse the memory.
  if (finished == nullptr)
    request->done.store(true, std::memory_order_release);
  else
    finished(request, status);
}

bool Engine::progress_lane(Lane& lane, bool may_call_base) {
  bool any = false;
  while (Request* request = lane.head_.load(std::memory_order_relaxed)) {
    Operation& operation = *request->operation;
    if (!may_call_base && operation.needs_base()) break;
    if (!request->started) {
      request->started = true;
      if (Status status = operation.start(); !status.ok()) {
        finish_head(lane, status);
        any = true;
        continue;
      }
    }
    Poll poll = operation.poll();
    if (!poll.finished()) {
      if (turns_ % turns_between_looks == 0) watch(operation, request->record);
      break;
    }
    finish_head(lane, poll.status());
    any = true;
  }
  return any;
}

bool Engine::progress(bool may_call_base) {
  if (!try_enter()) return false;
  ++turns_;
  bool any = false;
  for (Lane** link = &active_; *link != nullptr;) {
    Lane* lane = *link;
    any |= progress_lane(*lane, may_call_base);
    if (lane->empty()) {
      *link = lane->next_active_;
      lane->next_active_ = nullptr;
      lane->active_ = false;
    } else {
      link = &lane->next_active_;
    }
  }
  leave();
  return any;
}

}  // namespace tutti
