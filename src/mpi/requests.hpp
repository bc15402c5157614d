// Requests that look native, and what makes pending calls progress.
//
// A pending call of tutti is to the program a receive of no bytes on tutti's duplicate of
// MPI_COMM_SELF; tutti completes it by a send to itself. So it works in every completion call of
// the base beside the program's own requests. A failed call completes the same way; the intercepted
// completion call then finds it among the requests it was given, and raises the error.
//
// Progress while the program is inside the base:
//   hook    the base's progress calls tutti's (Open MPI: opal_progress_register). Registered only
//           while something is pending.
//   thread  a thread of tutti's drives the engine while something is pending. It never calls MPI:
//   the
//           requests are completed from the completion calls, which loop over the base's Test then.
//           Set-up of a communicator, which needs the base, is begun by blocking calls only.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/config.hpp"
#include "base/status.hpp"
#include "engine/engine.hpp"
#include "mpi/below.hpp"

namespace tutti::mpi {

// One pending call, or a persistent one and its starts. Owned by the pool; given back when it has completed,
// a persistent one when its request is freed.
struct Slot {
  Request request;                       // the engine's end
  Lane lane;                             // for operations that belong to no communicator
  std::unique_ptr<Operation> operation;  // likewise
  // What is still to be done when the call has ended well, by a thread that may call MPI.
  std::function<Status()> then;
  MPI_Request handle = MPI_REQUEST_NULL;  // the program's end
  MPI_Comm comm = MPI_COMM_NULL;          // whose error handler hears of a failure
  Status status;
  int tag = 0;
  bool failed = false;  // completed with an error that the program has not seen yet
  bool persistent = false;
  Slot* next = nullptr;
};

// Takes a slot with its receive posted, or an error code.
int take_slot(MPI_Comm comm, Slot** slot);
// Gives back a slot whose call did not begin; the program has not seen its handle.
void drop_slot(Slot* slot);

// A slot for the starts of one persistent call: its handle is a persistent receive.
int take_persistent_slot(MPI_Comm comm, Slot** slot);
// The base has started the receive: the call is about to begin.
void start_slot(Slot* slot);
// While it is inactive. The handle stays, for the base to free.
void give_back_persistent_slot(Slot* slot);

// Calls that are not complete, and failures not yet seen.
extern std::atomic<int> slots_in_use;
extern std::atomic<int> failures_unseen;
inline bool requests_quiet() {
  return slots_in_use.load(std::memory_order_relaxed) == 0 &&
         failures_unseen.load(std::memory_order_relaxed) == 0;
}

// Completes the requests of finished calls; from threads that may call MPI. Cheap when there is
// none.
void complete_finished();
// Drives pending calls once, then complete_finished().
void drive();

// Slots of that communicator hear no error handler any more: it goes.
void forget_comm(MPI_Comm comm);

// MPI_Init and the end. The way of progress is chosen and EngineHooks filled in; then, once there
// is a duplicate of MPI_COMM_SELF, what drives the base is made ready.
Status open_requests(const Config& config, EngineHooks& hooks);
Status open_base_progress();
void close_requests();
// Whether tutti's thread drives pending calls; equal on all ranks.
bool progress_by_thread();

}  // namespace tutti::mpi
