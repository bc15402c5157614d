// What tutti keeps of a communicator of the program.
//
// Found by its handle through a small cache of the thread, behind it an attribute under a key of
// tutti's own; name, other attributes and error handler of the communicator are never touched, and
// a duplicate starts without it. Built at the communicator's first call that tutti may take, which
// is the same call on all ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "comm/communicator.hpp"
#include "mpi/below.hpp"
#include "mpi/counters.hpp"
#include "mpi/handles.hpp"

namespace tutti::mpi {

class BouncedCall;

// How many elements an array argument has.
enum class Extent { ranks, sources, targets };
// Sources or targets of a rank in the communicator's topology.
int neighbours(MPI_Comm comm, int rank, Extent extent);

// A nonblocking call that was queued behind a set-up. Once begun, or known to be no call of the
// base, it is of no more concern to the order of calls.
struct Deferral {
  Call call;
  bool may_be_native = false;
  Agreed agreed;
  std::vector<uint64_t> counts;    // of `agreed`
  std::atomic<bool> begun{false};  // the base has been called
};

class State {
 public:
  State(MPI_Comm handle, int rank, int nranks) : handle_(handle), rank_(rank), nranks_(nranks) {}

  MPI_Comm handle() const { return handle_; }
  int rank() const { return rank_; }
  int nranks() const { return nranks_; }
  // Elements of an array argument of a collective on it.
  int extent(Extent extent) const;

  // Null where everything is for the MPI below: intercommunicators, single ranks.
  Communicator* communicator() const { return communicator_.get(); }
  // Set-up is over and every call of the base that was queued behind it has begun: calls may take
  // their path at once. The communicator alone does not say that: its queue goes on in its own
  // time.
  bool settled() const { return settled_.load(std::memory_order_acquire); }

  // A second state that orders starts, for persistent calls (persistent.hpp), and the number of the next such
  // call. Made by the first one, which all ranks make together; null where none can be had, on all ranks
  // alike, which is said once. Settled ones only.
  std::shared_ptr<Communicator> order_of_starts(int* error);
  uint64_t next_persistent() { return ++persistent_; }

 private:
  friend class States;
  MPI_Comm handle_;
  int rank_;
  int nranks_;
  bool closed_ = false;
  std::atomic<bool> settled_{true};
  std::unique_ptr<Communicator> communicator_;
  std::shared_ptr<Communicator> order_of_starts_;
  bool order_tried_ = false;
  uint64_t persistent_ = 0;
  std::vector<std::shared_ptr<Deferral>> deferrals_;  // under the lock of States
};

// Grows when a State goes: cached ones of that time count no more.
extern std::atomic<uint64_t> state_generation;
// Communicators whose set-up goes on. While there is none, nothing needs to be kept in order.
extern std::atomic<int> unsettled_count;

struct CachedState {
  MPI_Comm comm;
  uint64_t generation;  // 0: empty
  State* state;
};
inline constexpr size_t cached_states = 4;
extern constinit thread_local CachedState state_cache[cached_states]
    __attribute__((tls_model("initial-exec")));

// Looks behind the cache: 0 and *state, which is null if there is none and `build` is false. An
// error is an MPI error code that the base has raised.
int look_up_state(MPI_Comm comm, bool build, State** state);

inline CachedState& cache_line(MPI_Comm comm) {
  return state_cache[bits(comm) * 0x9e3779b97f4a7c15u >> 62];
}

// The communicator's State; built if it has none and may have one, else null.
inline int get_state(MPI_Comm comm, State** state, bool build = true) {
  const CachedState& line = cache_line(comm);
  if (line.comm == comm && line.generation == state_generation.load(std::memory_order_relaxed))
      [[likely]] {
    *state = line.state;
    return MPI_SUCCESS;
  }
  return look_up_state(comm, build, state);
}

// Whether the last calls found that nothing on this communicator is tutti's (one rank, an
// intercommunicator): two loads, so that such a call costs what one costs that is never looked at.
inline bool passes_all(MPI_Comm comm) {
  const CachedState& line = cache_line(comm);
  return line.comm == comm && line.generation == state_generation.load(std::memory_order_relaxed) &&
         (line.state == nullptr || line.state->communicator() == nullptr);
}

inline bool any_unsettled() {
  return unsettled_count.load(std::memory_order_relaxed) != 0;
}
// The communicator's State if its set-up still goes on.
State* unsettled_state(MPI_Comm comm);
// Waits for the end of set-up. Returns MPI_SUCCESS, or the error raised on the communicator.
int settle(State& state);
// The same where there may be no State: for calls that are passed on.
int keep_order(MPI_Comm comm);

// Notes a call that is about to be queued on a communicator that is not settled.
std::shared_ptr<Deferral> defer(State& state, Call call, const Agreed* may_be_native);

// Queues a nonblocking call of the base behind the set-up.
int start_later(State& state, MPI_Request* request, std::shared_ptr<BouncedCall> call);

// Frees a handle, but not while a queued call may still need it. Returns whether it was kept back.
bool free_later(std::function<void()> free);

// For messages.
std::string name_of(MPI_Comm comm);

// Turns a failed status into an MPI error code, and calls the communicator's error handler with it.
int raise(MPI_Comm comm, Status status);
int error_code(Status status);

// Before the base frees a communicator: waits for its pending calls. Not left to the deletion of
// the attribute, during which an MPI may hold a lock that other threads need for progress.
int close_state(MPI_Comm comm);

// MPI_Init and the end.
Status open_states();
// Ends every communicator's use: drains, then a barrier of each communicator's ranks within the
// watchdog's time, then gives everything back.
void close_states();

}  // namespace tutti::mpi
