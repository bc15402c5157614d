// Engine: the one place that waits, and the list of nonblocking calls that go on meanwhile.
//
// Progress both ways (law 2). While tutti waits, wait() drives the base through hooks.base_progress
// and every other pending call of tutti. While the program is inside the MPI below, whoever owns the
// hooks (mpi room: the base's progress hook, a helper thread, or the completion calls) calls
// progress(). progress() never blocks: it takes the engine by try-lock.
//
// Order: calls on one communicator run one after the other, in the order they were made (a Lane is that
// order); calls of different communicators run side by side. MPI makes the order equal on all ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/operation.hpp"

namespace tutti {

struct EngineHooks {
  // Makes the MPI below progress once; must not block. nullptr before MPI_Init.
  void (*base_progress)() = nullptr;
  // The number of pending nonblocking calls became non-zero / zero.
  void (*pending)(bool any) = nullptr;
  // Ranks of this node outnumber the cores they may use: yield instead of spinning.
  bool oversubscribed = false;
  // The program has one thread (below MPI_THREAD_SERIALIZED): no lock is taken.
  bool single_threaded = true;
  uint64_t warn_after_ns = 0;   // 0: never
  uint64_t fail_after_ns = 0;   // 0: never
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
  void* token = nullptr;    // the caller's
  Status status;
  std::atomic<bool> done{false};
};

// The calls of one communicator in order; the head is the one that runs.
class Lane {
 public:
  bool empty() const { return head_ == nullptr; }

 private:
  friend class Engine;
  Request* head_ = nullptr;
  Request* tail_ = nullptr;
  Lane* next_active_ = nullptr;
  bool active_ = false;
};

class Engine {
 public:
  explicit Engine(const EngineHooks& hooks) : hooks_(hooks) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Runs a blocking call to its end. With an empty lane nothing is queued or locked.
  Status run(Lane& lane, Operation& operation, CallRecord& record);
  // Queues a nonblocking call and returns; request.finished tells the end.
  void submit(Lane& lane, Request& request);
  // Waits until every call of the lane has finished (Comm_free, teardown).
  Status drain(Lane& lane);
  // Polls every pending call once. Returns whether one finished. Never blocks.
  bool progress();
  bool any_pending() const { return pending_.load(std::memory_order_relaxed) != 0; }
  const EngineHooks& hooks() const { return hooks_; }
  void set_hooks(const EngineHooks& hooks) { hooks_ = hooks; }

 private:
  class Waiter;
  bool progress_lane(Lane& lane);
  void append(Lane& lane, Request& request);

  EngineHooks hooks_;
  std::mutex mutex_;
  std::atomic<bool> inside_{false};  // re-entry guard of a single-threaded program
  std::atomic<uint32_t> pending_{0};
  Lane* active_ = nullptr;
};

}  // namespace tutti
