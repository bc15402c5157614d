// Engine: the one place that waits, and the list of nonblocking calls that go on meanwhile.
//
// Progress both ways (law 2). While tutti waits, wait() drives the base through hooks.base_progress
// and every other pending call of tutti. While the program is inside the MPI below, whoever owns
// the hooks (mpi room: the base's progress hook, a helper thread, or the completion calls) calls
// progress(). progress() never blocks: it takes the engine by try-lock.
//
// Order: calls on one communicator run one after the other, in the order they were made (a Lane is
// that order); calls of different communicators run side by side. MPI makes the order equal on all
// ranks.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/operation.hpp"

namespace tutti {

struct EngineHooks {
  // Makes the MPI below progress once; must not block. nullptr before MPI_Init.
  void (*base_progress)() = nullptr;
  // The number of pending nonblocking calls became non-zero / zero.
  void (*pending)(bool any) = nullptr;
  // Ranks of this node outnumber the cores they may use, or the MPI below is told to yield: yield in
  // every idle turn.
  bool oversubscribed = false;
  // The program has one thread (below MPI_THREAD_SERIALIZED): no lock is taken.
  bool single_threaded = true;
  uint64_t warn_after_ns = 0;  // 0: never
  uint64_t fail_after_ns = 0;  // 0: never
};

class Lane;

// A call in flight. Blocking calls keep it on the stack; nonblocking ones own it through `release`.
struct Request {
  Operation* operation = nullptr;
  CallRecord record;
  Lane* lane = nullptr;
  Request* next = nullptr;  // in the lane's order
  bool started = false;
  // Called once when the call has finished, under the engine's lock, from whatever thread drives
  // progress; must not block or wait. nullptr for blocking calls.
  void (*finished)(Request* request, Status status) = nullptr;
  void* token = nullptr;  // the caller's
  Status status;
  std::atomic<bool> done{false};
};

// The calls of one communicator in order; the head is the one that runs.
class Lane {
 public:
  // Acquire: whoever sees it empty sees what the last call did.
  bool empty() const { return head_.load(std::memory_order_acquire) == nullptr; }

 private:
  friend class Engine;
  std::atomic<Request*> head_{nullptr};
  Request* tail_ = nullptr;
  Lane* next_active_ = nullptr;
  bool active_ = false;
};

// Nanoseconds of the clock by which waits are bounded: it never goes back.
uint64_t now_ns();

class Engine {
 public:
  explicit Engine(const EngineHooks& hooks) : hooks_(hooks) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Runs a blocking call to its end. With an empty lane nothing is queued or locked: MPI lets only
  // one thread at a time be in a collective of one communicator.
  Status run(Lane& lane, Operation& operation, CallRecord& record);
  // Queues a nonblocking call and returns; request.finished tells the end. The request lives until
  // then.
  void submit(Lane& lane, Request& request);
  // Waits until that request of submit() has finished, driving everything meanwhile.
  Status wait(Request& request);
  // Waits until every call of the lane has finished (Comm_free, teardown).
  void drain(Lane& lane);
  // Polls the head of every pending lane once. Returns whether a call finished. Never blocks.
  // may_call_base: false on a helper thread, which leaves operations that need the MPI below alone.
  bool progress(bool may_call_base = true);

  bool any_pending() const { return pending_.load(std::memory_order_relaxed) != 0; }
  const EngineHooks& hooks() const { return hooks_; }
  // Only while nothing is pending.
  void set_hooks(const EngineHooks& hooks) { hooks_ = hooks; }

 private:
  // One idle turn of a wait: everything else moves, the watchdog looks.
  void idle(Operation* operation, CallRecord& record, uint32_t turn);
  void watch(Operation& operation, CallRecord& record);
  bool progress_lane(Lane& lane, bool may_call_base);
  void finish_head(Lane& lane, Status status);
  bool try_enter();
  void enter();
  void leave();

  EngineHooks hooks_;
  // The engine's lock: a flag, because it is only ever tried or held for a bounded time, and
  // because the base's progress may come back to progress() on the thread that holds it.
  std::atomic<bool> inside_{false};
  std::atomic<uint32_t> pending_{0};
  Lane* active_ = nullptr;  // lanes with a head, under the lock
  uint32_t turns_ = 0;
};

}  // namespace tutti
