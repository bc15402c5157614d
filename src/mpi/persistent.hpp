// Persistent calls with buffers on a device.
//
// bounced: the base's request is made on host copies and lives as long as these. A start fills the copies that are
// read; whatever tells the program that the call has ended first writes the others back. An inactive request
// completes at once in the base and has nothing to write.
//
// native: where some rank has a buffer on a device, the ranks agree when the call is made on that tutti performs
// it. Its starts may come in different orders on different ranks, so they do not run on the communicator's own
// state but on a second one, which knows how to put them in one order (comm/start_order.hpp) and which all native
// persistent calls of the communicator share, however many there are. It needs nothing of the program's
// communicator once it is set up: MPI_Comm_free may come before the last start. The program's request is a
// persistent receive on the duplicate of MPI_COMM_SELF.
#pragma once

#include <atomic>
#include <memory>

#include "mpi/bounce.hpp"
#include "mpi/draft.hpp"
#include "mpi/requests.hpp"

namespace tutti::mpi {

struct NativePersistent {
  NativePersistent() = default;
  NativePersistent(const NativePersistent&) = delete;
  NativePersistent& operator=(const NativePersistent&) = delete;
  ~NativePersistent();

  std::shared_ptr<Communicator> order;  // null once tutti has ended
  uint64_t number = 0;
  Slot* slot = nullptr;
  std::shared_ptr<void> draft;  // holds what follows
  Problem* problem = nullptr;
  std::shared_ptr<Packing> packing;
};

// MPICH: starts in opposite orders on two ranks did not end in two minutes on two cores (HACKING 10).
#ifdef MPICH_VERSION
inline constexpr bool persistent_may_be_native = false;
#else
inline constexpr bool persistent_may_be_native = true;
#endif

struct PersistentCall {
  explicit PersistentCall(MPI_Comm communicator) : comm(communicator) {}
  HostCopies copies;
  std::unique_ptr<NativePersistent> native;  // else the base's, on those copies
  MPI_Comm comm;                             // whose error handler hears of a failure
  bool active = false;
  Status status;  // of the copies of the active call
};

extern std::atomic<int> persistent_calls;
// Whether any request may be one of these: no more than a load where there is none.
inline bool any_persistent() {
  return persistent_calls.load(std::memory_order_relaxed) != 0;
}

void enroll(MPI_Request request, std::unique_ptr<PersistentCall> call);
// Once the base has completed it. MPI_SUCCESS, or the error raised; that of a native one is its slot's.
int end_persistent(MPI_Request request);
// The same where the request stays active: what was received is there, and the completion call is to come.
int end_bounced(MPI_Request request);
// The same where the base's answer does not say whether it has.
int end_if_complete(MPI_Request request);
// Before the base frees it. Whether it was one of these.
bool forget_persistent(MPI_Request request);
// Null where it is no native one.
PersistentCall* find_native_persistent(MPI_Request request);
// That communicator goes.
void forget_persistent_comm(MPI_Comm comm);
// tutti ends: requests that the program has not freed hold nothing of it any more.
void close_persistent();

}  // namespace tutti::mpi
