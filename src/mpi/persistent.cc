#include "mpi/persistent.hpp"

#include <mutex>
#include <unordered_map>

#include "mpi/entry.hpp"
#include "mpi/lifecycle.hpp"

namespace tutti::mpi {

std::atomic<int> persistent_calls{0};

namespace {

struct Calls {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::unique_ptr<PersistentCall>> by_request;
};
Calls& calls() {
  static Calls* const instance = new Calls;  // outlives callbacks late in the exit
  return *instance;
}

// A request is one thread's at a time, so what is found stays.
PersistentCall* find(MPI_Request request) {
  if (!any_persistent() || request == MPI_REQUEST_NULL) return nullptr;
  std::lock_guard<std::mutex> lock(calls().mutex);
  const auto at = calls().by_request.find(bits(request));
  return at == calls().by_request.end() ? nullptr : at->second.get();
}

}  // namespace

void enroll(MPI_Request request, std::unique_ptr<PersistentCall> call) {
  std::lock_guard<std::mutex> lock(calls().mutex);
  calls().by_request[bits(request)] = std::move(call);
  persistent_calls.store(static_cast<int>(calls().by_request.size()), std::memory_order_relaxed);
}

void begin_persistent(MPI_Request request) {
  PersistentCall* call = find(request);
  if (call == nullptr || call->active) return;  // a second start is for the base to refuse
  call->active = true;
  call->status = call->copies.copy_in();
}

int end_persistent(MPI_Request request) {
  PersistentCall* call = find(request);
  if (call == nullptr || !call->active) return MPI_SUCCESS;
  call->active = false;
  Status status = call->copies.copy_out();
  if (!call->status.ok()) status = call->status;
  return status.ok() ? MPI_SUCCESS : raise(call->comm, status);
}

int end_if_complete(MPI_Request request) {
  const PersistentCall* call = find(request);
  if (call == nullptr || !call->active) return MPI_SUCCESS;
  int flag = 0;
  if (below.Request_get_status.pmpi(request, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS || flag == 0)
    return MPI_SUCCESS;
  return end_persistent(request);
}

void forget_persistent(MPI_Request request) {
  PersistentCall* call = find(request);
  if (call == nullptr) return;
  if (call->active) {  // erroneous, and the base may still write to the copies
    below.Wait.pmpi(&request, MPI_STATUS_IGNORE);
    (void)end_persistent(request);
  }
  std::lock_guard<std::mutex> lock(calls().mutex);
  calls().by_request.erase(bits(request));
  persistent_calls.store(static_cast<int>(calls().by_request.size()), std::memory_order_relaxed);
}

namespace own {

int Start(Layer layer, MPI_Request* request) {
  Passage passage(layer);
  if (any_persistent() && passage.outermost() && request != nullptr) begin_persistent(*request);
  return passage.pass(below.Start, request);
}

int Startall(Layer layer, int count, MPI_Request* requests) {
  Passage passage(layer);
  if (any_persistent() && passage.outermost() && requests != nullptr)
    for (int i = 0; i < count; ++i) begin_persistent(requests[i]);
  return passage.pass(below.Startall, count, requests);
}

}  // namespace own

}  // namespace tutti::mpi
