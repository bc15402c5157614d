#include "mpi/requests.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/log.hpp"
#include "mpi/entry.hpp"
#include "mpi/lifecycle.hpp"
#include "mpi/persistent.hpp"

namespace tutti::mpi {

std::atomic<int> slots_in_use{0};
std::atomic<int> failures_unseen{0};

namespace {

// ---- The pool.

// Tags on the duplicate of MPI_COMM_SELF: this one for `never` below, then one a slot.
constexpr int never_tag = 0;

struct Pool {
  std::mutex mutex;
  std::deque<Slot> slots;  // grows at its end: addresses stay
  Slot* free = nullptr;
};
Pool& pool() {
  static Pool* const instance = new Pool;  // never destroyed: a callback may come late in the exit
  return *instance;
}

// Finished calls whose requests are still to be completed. Pushed from any thread, taken whole.
std::atomic<Slot*> finished_slots{nullptr};

void on_finished(Request* request, Status status) {
  Slot* slot = static_cast<Slot*>(request->token);
  slot->status = status;
  slot->next = finished_slots.load(std::memory_order_relaxed);
  while (!finished_slots.compare_exchange_weak(slot->next, slot, std::memory_order_release,
                                               std::memory_order_relaxed)) {
  }
}

void give_back(Slot* slot) {
  std::lock_guard<std::mutex> lock(pool().mutex);
  slot->operation.reset();
  slot->then = nullptr;
  slot->handle = MPI_REQUEST_NULL;
  slot->failed = false;
  slot->persistent = false;
  slot->next = pool().free;
  pool().free = slot;
}

Slot* pop_slot() {
  std::lock_guard<std::mutex> lock(pool().mutex);
  if (pool().free == nullptr) {
    Slot& fresh = pool().slots.emplace_back();
    fresh.tag = never_tag + static_cast<int>(pool().slots.size());
    return &fresh;
  }
  Slot* slot = pool().free;
  pool().free = slot->next;
  return slot;
}

// The slot behind a request of the program, or null.
Slot* find_slot(MPI_Request handle) {
  if (handle == MPI_REQUEST_NULL) return nullptr;
  std::lock_guard<std::mutex> lock(pool().mutex);
  for (Slot& slot : pool().slots)
    if (slot.handle == handle) return &slot;
  return nullptr;
}

void complete(Slot* slot) {
  // Read before the program can see the completion and hand the slot on.
  const int tag = slot->tag;
  if (slot->then != nullptr && slot->status.ok()) slot->status = slot->then();
  const bool persistent = slot->persistent;
  const bool kept = !slot->status.ok();
  if (kept) {
    slot->failed = true;
    failures_unseen.fetch_add(1, std::memory_order_release);
  }
  // The receive is posted, so the send finds it and ends at once. The slot stays ours meanwhile:
  // its tag must not be used again before the message has been matched.
  if (below.Send(nullptr, 0, MPI_BYTE, 0, tag, runtime().self) != MPI_SUCCESS)
    TUTTI_ERROR("mpi", "the MPI below refused to complete request {} of tutti", tag);
  slots_in_use.fetch_sub(1, std::memory_order_release);
  if (!kept && !persistent) give_back(slot);
}

// ---- Progress.

using ProgressFunction = void (*)();
using OpalCallback = int (*)();
using OpalRegister = int (*)(OpalCallback);
using OpalYield = bool (*)(bool yield);  // gives what was set before

struct Progress {
  bool by_thread = false;
  ProgressFunction base = nullptr;       // opal_progress
  MPI_Request never = MPI_REQUEST_NULL;  // for drive_by_test
  OpalRegister enroll = nullptr;
  OpalRegister retire = nullptr;
  std::mutex mutex;  // of what follows
  std::condition_variable changed;
  bool enrolled = false;
  bool stop = false;
  std::thread helper;
  std::atomic<bool> wanted{false};
};
Progress& progress() {
  static Progress* const instance = new Progress;
  return *instance;
}

int on_base_progress() {
  const bool any = runtime().engine.progress();
  complete_finished();
  return any ? 1 : 0;
}

// Engine's hook, called with its lock held, in the order of the changes.
void hook_pending(bool any) {
  std::lock_guard<std::mutex> lock(progress().mutex);
  if (any == progress().enrolled) return;
  progress().enrolled = any;
  if (any)
    progress().enroll(&on_base_progress);
  else
    progress().retire(&on_base_progress);
}

// Between polls that find nothing: first keep the core for a peer's answer, then let others have
// it.
class Backoff {
 public:
  void rest() {
    if (++idle_ < 200) return;
    if (idle_ < 2000) {
      sched_yield();
      return;
    }
    const timespec pause = {0, 20000};
    nanosleep(&pause, nullptr);
  }
  void reset() { idle_ = 0; }

 private:
  uint32_t idle_ = 0;
};

void helper_main() {
  Progress& own = progress();
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(own.mutex);
      own.changed.wait(lock, [&] { return own.stop || own.wanted.load(); });
      if (own.stop) return;
    }
    Backoff backoff;
    while (own.wanted.load(std::memory_order_relaxed)) {
      if (runtime().engine.progress(false))
        backoff.reset();
      else
        backoff.rest();
    }
  }
}

// The thread starts with the first call that needs it, with all signals blocked: they are for the
// program's threads.
void start_helper(Progress& own) {
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  own.helper = std::thread(helper_main);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void thread_pending(bool any) {
  Progress& own = progress();
  std::lock_guard<std::mutex> lock(own.mutex);
  if (any && !own.helper.joinable()) start_helper(own);
  own.wanted.store(any, std::memory_order_relaxed);
  if (any) own.changed.notify_one();
}

void drive_opal() {
  progress().base();
  complete_finished();
}

// A test of a receive that nothing is ever sent to. A probe would not do: MPICH's looks for
// messages only and leaves its nonblocking collectives where they are.
void drive_by_test() {
  int flag = 0;
  below.Test.pmpi(&progress().never, &flag, MPI_STATUS_IGNORE);
  complete_finished();
}

template <class Function>
Function symbol(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace

namespace {

void renew(Slot* slot) {
  slot->request.operation = nullptr;
  slot->request.record = CallRecord();
  slot->request.started = false;
  slot->request.done.store(false, std::memory_order_relaxed);
  slot->request.finished = &on_finished;
  slot->request.token = slot;
  slot->status = Status();
}

}  // namespace

int take_slot(MPI_Comm comm, Slot** taken) {
  Slot* slot = pop_slot();
  renew(slot);
  slot->comm = comm;
  MPI_Request handle = MPI_REQUEST_NULL;
  const int error = below.Irecv(nullptr, 0, MPI_BYTE, 0, slot->tag, runtime().self, &handle);
  if (error != MPI_SUCCESS) {
    give_back(slot);
    return error;
  }
  slot->handle = handle;
  slots_in_use.fetch_add(1, std::memory_order_relaxed);
  *taken = slot;
  return MPI_SUCCESS;
}

int take_persistent_slot(MPI_Comm comm, Slot** taken) {
  Slot* slot = pop_slot();
  slot->comm = comm;
  MPI_Request handle = MPI_REQUEST_NULL;
  const int error = below.Recv_init(nullptr, 0, MPI_BYTE, 0, slot->tag, runtime().self, &handle);
  if (error != MPI_SUCCESS) {
    give_back(slot);
    return error;
  }
  slot->handle = handle;
  slot->persistent = true;
  *taken = slot;
  return MPI_SUCCESS;
}

void start_slot(Slot* slot) {
  renew(slot);
  slots_in_use.fetch_add(1, std::memory_order_relaxed);
}

void give_back_persistent_slot(Slot* slot) {
  if (slot->failed) failures_unseen.fetch_sub(1, std::memory_order_relaxed);
  give_back(slot);
}

void drop_slot(Slot* slot) {
  // Completes the receive and takes it away: the program never saw it.
  MPI_Request handle = slot->handle;
  slot->status = Status();
  complete(slot);
  below.Request_free.pmpi(&handle);
}

void complete_finished() {
  if (finished_slots.load(std::memory_order_relaxed) == nullptr) [[likely]]
    return;
  // What is still to be done of a call may drive others to their end, and nobody looks again once nothing is
  // pending.
  while (Slot* slot = finished_slots.exchange(nullptr, std::memory_order_acquire)) {
    while (slot != nullptr) {
      Slot* next = slot->next;
      complete(slot);
      slot = next;
    }
  }
}

void drive() {
  if (runtime().engine.any_pending()) runtime().engine.progress();
  complete_finished();
}

void forget_comm(MPI_Comm comm) {
  if (any_persistent()) forget_persistent_comm(comm);
  if (requests_quiet() && !any_persistent()) return;
  std::lock_guard<std::mutex> lock(pool().mutex);
  for (Slot& slot : pool().slots)
    if (slot.comm == comm) slot.comm = MPI_COMM_SELF;
}

bool progress_by_thread() {
  return progress().by_thread;
}

// Whether Open MPI yields in its waits: its launcher tells it where it has put more ranks than slots
// there, and the user where only he knows that others want these cores.
bool base_yields() {
  const auto set_yield = symbol<OpalYield>("opal_progress_set_yield_when_idle");
  if (set_yield == nullptr) return false;
  const bool yields = set_yield(true);
  set_yield(yields);
  return yields;
}

Status open_requests(const Config& config, EngineHooks& hooks) {
  Progress& own = progress();
  own.base = symbol<ProgressFunction>("opal_progress");
  own.enroll = symbol<OpalRegister>("opal_progress_register");
  own.retire = symbol<OpalRegister>("opal_progress_unregister");
  const bool can_hook = own.base != nullptr && own.enroll != nullptr && own.retire != nullptr;
  if (config.progress == tutti::Progress::hook && !can_hook) {
    TUTTI_ERROR("mpi",
                "TUTTI_PROGRESS=hook: this MPI has no progress hook that tutti knows; auto and "
                "thread are possible");
    return Code::bad_setting;
  }
  own.by_thread = !can_hook || config.progress == tutti::Progress::thread;
  hooks.oversubscribed = base_yields();
  hooks.base_progress = own.base != nullptr ? &drive_opal : &drive_by_test;
  hooks.pending = own.by_thread ? &thread_pending : &hook_pending;
  if (own.by_thread) hooks.single_threaded = false;
  TUTTI_DEBUG("mpi", "pending calls progress by {}",
              own.by_thread ? "a thread" : "the base's hook");
  return Code::ok;
}

Status open_base_progress() {
  if (progress().base != nullptr) return Code::ok;
  return below.Irecv(nullptr, 0, MPI_BYTE, 0, never_tag, runtime().self, &progress().never) ==
                 MPI_SUCCESS
             ? Code::ok
             : Code::internal;
}

void close_requests() {
  Progress& own = progress();
  complete_finished();
  if (own.never != MPI_REQUEST_NULL) {
    below.Send(nullptr, 0, MPI_BYTE, 0, never_tag, runtime().self);
    below.Wait.pmpi(&own.never, MPI_STATUS_IGNORE);
  }
  if (own.enrolled) hook_pending(false);
  if (!own.helper.joinable()) return;
  {
    std::lock_guard<std::mutex> lock(own.mutex);
    own.wanted.store(false);
    own.stop = true;
    own.changed.notify_one();
  }
  own.helper.join();
}

// ---- Completion calls.

namespace {

// The requests that a completion call is given, kept so that a failed one is known afterwards. An
// allocation only for many requests while calls of tutti are pending.
class Given {
 public:
  Given(int count, const MPI_Request* requests)
      : count_(count > 0 && requests != nullptr ? count : 0) {
    MPI_Request* to = few_;
    if (static_cast<size_t>(count_) > std::size(few_)) {
      many_.resize(static_cast<size_t>(count_));
      to = many_.data();
    }
    for (int i = 0; i < count_; ++i) to[i] = requests[i];
  }
  MPI_Request operator[](int i) const {
    return static_cast<size_t>(count_) > std::size(few_) ? many_[static_cast<size_t>(i)] : few_[i];
  }
  int count() const { return count_; }

 private:
  int count_;
  MPI_Request few_[16];
  std::vector<MPI_Request> many_;
};

struct Failure {
  int code = MPI_SUCCESS;
  MPI_Comm comm = MPI_COMM_NULL;
};

// Whether that request, now complete, was a failed call. Its slot is free afterwards.
Failure see_failure(MPI_Request handle) {
  Slot* slot = find_slot(handle);
  if (slot == nullptr || !slot->failed) return {};
  Failure failure = {error_code(slot->status), slot->comm};
  failures_unseen.fetch_sub(1, std::memory_order_relaxed);
  if (slot->persistent)
    slot->failed = false;
  else
    give_back(slot);
  return failure;
}

int raise_failure(const Failure& failure, int code) {
  below.Comm_call_errhandler(failure.comm, code);
  return code;
}

bool failures() {
  return failures_unseen.load(std::memory_order_acquire) != 0;
}

// After a call that completed that one request.
int report_one(int error, MPI_Request given) {
  if (error == MPI_SUCCESS && any_persistent()) error = end_persistent(given);
  if (!failures() || error != MPI_SUCCESS) return error;
  const Failure failure = see_failure(given);
  return failure.code == MPI_SUCCESS ? error : raise_failure(failure, failure.code);
}

// Writes back what the persistent calls among n completed requests have received.
template <class Index>
int end_persistent_calls(int error, const Given& given, int n, Index index) {
  if (!any_persistent()) return error;
  for (int i = 0; i < n; ++i) {
    const MPI_Request request = given[index(i)];
    const int fault = error == MPI_SUCCESS ? end_persistent(request) : end_if_complete(request);
    if (error == MPI_SUCCESS) error = fault;
  }
  return error;
}

// After a call that completed the n requests at `index(i)` of those given, their statuses at i.
template <class Index>
int report_many(int error, const Given& given, int n, Index index, MPI_Status* statuses) {
  error = end_persistent_calls(error, given, n, index);
  if (!failures() || (error != MPI_SUCCESS && error != MPI_ERR_IN_STATUS)) return error;
  Failure first;
  for (int i = 0; i < n; ++i) {
    const Failure failure = see_failure(given[index(i)]);
    if (failure.code == MPI_SUCCESS) continue;
    if (first.code == MPI_SUCCESS) first = failure;
    if (statuses == MPI_STATUSES_IGNORE) continue;
    // The base said that all went well and left the fields of the others as they were.
    if (error == MPI_SUCCESS)
      for (int j = 0; j < n; ++j) statuses[j].MPI_ERROR = MPI_SUCCESS;
    error = MPI_ERR_IN_STATUS;
    statuses[i].MPI_ERROR = failure.code;
  }
  return first.code == MPI_SUCCESS ? error : raise_failure(first, MPI_ERR_IN_STATUS);
}

// A wait of the program while tutti's thread drives its calls: their requests are completed here.
// attempt(done) is the base's Test. False when nothing of tutti is pending any more.
template <class Attempt>
bool wait_by_testing(int& error, Attempt attempt) {
  Backoff backoff;
  while (!requests_quiet()) {
    drive();
    bool done = false;
    error = attempt(done);
    if (error != MPI_SUCCESS || done) return true;
    if (runtime().engine.hooks().oversubscribed)
      sched_yield();
    else
      backoff.rest();
  }
  return false;
}

// Whether a completion call is to be looked after at all.
bool quiet(const Passage& passage) {
  return (requests_quiet() && !any_persistent()) || !passage.outermost() || !active();
}

}  // namespace

namespace own {

int Wait(Layer layer, MPI_Request* request, MPI_Status* status) {
  Passage passage(layer);
  if (quiet(passage) || request == nullptr) [[likely]]
    return passage.pass(below.Wait, request, status);
  const MPI_Request given = *request;
  int error = MPI_SUCCESS;
  if (!progress_by_thread() || !wait_by_testing(error, [&](bool& done) {
        int flag = 0;
        int code = below.Test.pmpi(request, &flag, status);
        done = flag != 0;
        return code;
      }))
    error = passage.pass(below.Wait, request, status);
  return report_one(error, given);
}

int Waitall(Layer layer, int count, MPI_Request* requests, MPI_Status* statuses) {
  Passage passage(layer);
  if (quiet(passage)) [[likely]]
    return passage.pass(below.Waitall, count, requests, statuses);
  const Given given(count, requests);
  int error = MPI_SUCCESS;
  if (!progress_by_thread() || !wait_by_testing(error, [&](bool& done) {
        int flag = 0;
        int code = below.Testall.pmpi(count, requests, &flag, statuses);
        done = flag != 0;
        return code;
      }))
    error = passage.pass(below.Waitall, count, requests, statuses);
  return report_many(
      error, given, given.count(), [](int i) { return i; }, statuses);
}

int Waitany(Layer layer, int count, MPI_Request* requests, int* index, MPI_Status* status) {
  Passage passage(layer);
  if (quiet(passage)) [[likely]]
    return passage.pass(below.Waitany, count, requests, index, status);
  const Given given(count, requests);
  int error = MPI_SUCCESS;
  if (!progress_by_thread() || !wait_by_testing(error, [&](bool& done) {
        int flag = 0;
        int code = below.Testany.pmpi(count, requests, index, &flag, status);
        done = flag != 0;
        return code;
      }))
    error = passage.pass(below.Waitany, count, requests, index, status);
  if (error != MPI_SUCCESS || *index == MPI_UNDEFINED) return error;
  return report_one(error, given[*index]);
}

int Waitsome(Layer layer, int incount, MPI_Request* requests, int* outcount, int* indices,
             MPI_Status* statuses) {
  Passage passage(layer);
  if (quiet(passage)) [[likely]]
    return passage.pass(below.Waitsome, incount, requests, outcount, indices, statuses);
  const Given given(incount, requests);
  int error = MPI_SUCCESS;
  if (!progress_by_thread() || !wait_by_testing(error, [&](bool& done) {
        int code = below.Testsome.pmpi(incount, requests, outcount, indices, statuses);
        done = *outcount != 0;  // MPI_UNDEFINED: no active request
        return code;
      }))
    error = passage.pass(below.Waitsome, incount, requests, outcount, indices, statuses);
  return report_many(
      error, given, *outcount == MPI_UNDEFINED ? 0 : *outcount, [&](int i) { return indices[i]; },
      statuses);
}

int Test(Layer layer, MPI_Request* request, int* flag, MPI_Status* status) {
  Passage passage(layer);
  if (quiet(passage) || request == nullptr) [[likely]]
    return passage.pass(below.Test, request, flag, status);
  const MPI_Request given = *request;
  drive();
  const int error = passage.pass(below.Test, request, flag, status);
  return *flag != 0 ? report_one(error, given) : error;
}

int Testall(Layer layer, int count, MPI_Request* requests, int* flag, MPI_Status* statuses) {
  Passage passage(layer);
  if (quiet(passage)) [[likely]]
    return passage.pass(below.Testall, count, requests, flag, statuses);
  const Given given(count, requests);
  drive();
  const int error = passage.pass(below.Testall, count, requests, flag, statuses);
  if (error == MPI_SUCCESS && *flag == 0) return error;
  return report_many(
      error, given, given.count(), [](int i) { return i; }, statuses);
}

int Testany(Layer layer, int count, MPI_Request* requests, int* index, int* flag,
            MPI_Status* status) {
  Passage passage(layer);
  if (quiet(passage)) [[likely]]
    return passage.pass(below.Testany, count, requests, index, flag, status);
  const Given given(count, requests);
  drive();
  const int error = passage.pass(below.Testany, count, requests, index, flag, status);
  if (error != MPI_SUCCESS || *flag == 0 || *index == MPI_UNDEFINED) return error;
  return report_one(error, given[*index]);
}

int Testsome(Layer layer, int incount, MPI_Request* requests, int* outcount, int* indices,
             MPI_Status* statuses) {
  Passage passage(layer);
  if (quiet(passage)) [[likely]]
    return passage.pass(below.Testsome, incount, requests, outcount, indices, statuses);
  const Given given(incount, requests);
  drive();
  const int error = passage.pass(below.Testsome, incount, requests, outcount, indices, statuses);
  return report_many(
      error, given, *outcount == MPI_UNDEFINED ? 0 : *outcount, [&](int i) { return indices[i]; },
      statuses);
}

int Request_get_status(Layer layer, MPI_Request request, int* flag, MPI_Status* status) {
  Passage passage(layer);
  if (quiet(passage)) return passage.pass(below.Request_get_status, request, flag, status);
  drive();
  const int error = passage.pass(below.Request_get_status, request, flag, status);
  return error == MPI_SUCCESS && *flag != 0 ? end_bounced(request) : error;
}

namespace {

// Freeing and cancelling a nonblocking collective are erroneous (MPI-4.0 section 6.12), and the
// MPIs say so; the receive behind a request of tutti could be freed and cancelled.
template <class Function>
int refuse_collective(const Passage& passage, const Next<Function>& next, MPI_Request* request) {
  if (!requests_quiet() && passage.outermost() && active() && request != nullptr) {
    if (const Slot* slot = find_slot(*request)) {
      below.Comm_call_errhandler(slot->comm, MPI_ERR_REQUEST);
      return MPI_ERR_REQUEST;
    }
  }
  return passage.pass(next, request);
}

}  // namespace

int Request_free(Layer layer, MPI_Request* request) {
  Passage passage(layer);
  if (any_persistent() && passage.outermost() && request != nullptr && forget_persistent(*request))
    return passage.pass(below.Request_free, request);
  return refuse_collective(passage, below.Request_free, request);
}

int Cancel(Layer layer, MPI_Request* request) {
  Passage passage(layer);
  if (passage.outermost() && request != nullptr)
    if (const PersistentCall* call = find_native_persistent(*request)) {
      below.Comm_call_errhandler(call->comm, MPI_ERR_REQUEST);
      return MPI_ERR_REQUEST;
    }
  return refuse_collective(passage, below.Cancel, request);
}

}  // namespace own

}  // namespace tutti::mpi
