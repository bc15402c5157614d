// Persistent calls whose buffers are on a device.
//
// The base's request is made on host copies and lives as long as these. A start fills the copies that are
// read; whatever tells the program that the call has ended first writes the others back. An inactive
// request completes at once in the base and has nothing to write.
#pragma once

#include <atomic>
#include <memory>

#include "mpi/bounce.hpp"

namespace tutti::mpi {

struct PersistentCall {
  explicit PersistentCall(MPI_Comm communicator) : comm(communicator) {}
  HostCopies copies;
  MPI_Comm comm;  // whose error handler hears of a failure
  bool active = false;
  Status status;  // of the copies of the active call
};

extern std::atomic<int> persistent_calls;
// Whether any request may be one of these: no more than a load where there is none.
inline bool any_persistent() {
  return persistent_calls.load(std::memory_order_relaxed) != 0;
}

void enroll(MPI_Request request, std::unique_ptr<PersistentCall> call);
// Before the base starts it.
void begin_persistent(MPI_Request request);
// Once the base has completed it. MPI_SUCCESS, or the error raised.
int end_persistent(MPI_Request request);
// The same where the base's answer does not say whether it has.
int end_if_complete(MPI_Request request);
// Before the base frees it.
void forget_persistent(MPI_Request request);

}  // namespace tutti::mpi
