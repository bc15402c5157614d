#include "mpi/persistent.hpp"

#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/log.hpp"
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

int end_copies(PersistentCall& call) {
  call.active = false;
  Status status = call.copies.copy_out();
  if (!call.status.ok()) status = call.status;
  return status.ok() ? MPI_SUCCESS : raise(call.comm, status);
}

// The program's start of one request or several, before and after the base's. One needs no memory.
class Starting {
 public:
  void before(MPI_Request request) {
    PersistentCall* call = find(request);
    if (call == nullptr || call->active) return;  // a second start is for the base to refuse
    if (call->native != nullptr) {
      if (first_ == nullptr)
        first_ = call;
      else
        others_.push_back(call);
      return;
    }
    call->active = true;
    call->status = call->copies.copy_in();
  }
  int after(int error) {
    if (error != MPI_SUCCESS || first_ == nullptr) return error;
    begin(*first_);
    for (PersistentCall* call : others_) begin(*call);
    // What was begun together is told together.
    Communicator* last = first_->native->order.get();
    last->go();
    for (const PersistentCall* call : others_) {
      Communicator* order = call->native->order.get();
      if (order != last) order->go();
      last = order;
    }
    complete_finished();
    return error;
  }

 private:
  static void begin(PersistentCall& call) {
    call.active = true;
    NativePersistent& native = *call.native;
    start_slot(native.slot);
    // A failure is told to the peers by the call itself.
    if (native.packing != nullptr) native.problem->local.error = native.packing->in().code();
    native.order->begin_in_any_order(native.number, *native.problem, native.slot->request);
  }

  PersistentCall* first_ = nullptr;
  std::vector<PersistentCall*> others_;
};

}  // namespace

NativePersistent::~NativePersistent() {
  if (slot != nullptr) give_back_persistent_slot(slot);
}

void enroll(MPI_Request request, std::unique_ptr<PersistentCall> call) {
  std::lock_guard<std::mutex> lock(calls().mutex);
  calls().by_request[bits(request)] = std::move(call);
  persistent_calls.store(static_cast<int>(calls().by_request.size()), std::memory_order_relaxed);
}

int end_persistent(MPI_Request request) {
  PersistentCall* call = find(request);
  if (call == nullptr || !call->active) return MPI_SUCCESS;
  if (call->native == nullptr) return end_copies(*call);
  call->active = false;
  return MPI_SUCCESS;
}

int end_bounced(MPI_Request request) {
  PersistentCall* call = find(request);
  if (call == nullptr || !call->active || call->native != nullptr) return MPI_SUCCESS;
  return end_copies(*call);
}

int end_if_complete(MPI_Request request) {
  const PersistentCall* call = find(request);
  if (call == nullptr || !call->active) return MPI_SUCCESS;
  int flag = 0;
  if (below.Request_get_status.pmpi(request, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS || flag == 0)
    return MPI_SUCCESS;
  return end_persistent(request);
}

namespace {

// Freeing an active one is erroneous, and its buffers are in use until it ends.
void wait_for(MPI_Request request) {
  for (int flag = 0; flag == 0;) {
    drive();
    if (below.Test.pmpi(&request, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
    if (runtime().engine.hooks().oversubscribed) std::this_thread::yield();
  }
}

}  // namespace

bool forget_persistent(MPI_Request request) {
  PersistentCall* call = find(request);
  if (call == nullptr) return false;
  if (call->active) {
    wait_for(request);
    (void)end_persistent(request);
  }
  std::unique_ptr<PersistentCall> gone;
  std::lock_guard<std::mutex> lock(calls().mutex);
  const auto at = calls().by_request.find(bits(request));
  gone = std::move(at->second);
  calls().by_request.erase(at);
  persistent_calls.store(static_cast<int>(calls().by_request.size()), std::memory_order_relaxed);
  return true;
}

PersistentCall* find_native_persistent(MPI_Request request) {
  PersistentCall* call = find(request);
  return call != nullptr && call->native != nullptr ? call : nullptr;
}

void forget_persistent_comm(MPI_Comm comm) {
  std::lock_guard<std::mutex> lock(calls().mutex);
  for (auto& [request, call] : calls().by_request)
    if (call->comm == comm) call->comm = MPI_COMM_SELF;
}

void close_persistent() {
  std::vector<std::shared_ptr<Communicator>> orders;
  std::lock_guard<std::mutex> lock(calls().mutex);
  for (auto& [request, call] : calls().by_request)
    if (call->native != nullptr) orders.push_back(std::move(call->native->order));
}

int agree_on_persistent(State& state, int flags, bool* native) {
  int all = 0;
  const int error = below.Allreduce.pmpi(&flags, &all, 1, MPI_INT, MPI_BOR, state.handle());
  *native = error == MPI_SUCCESS && all == persistent_on_device;
  return error;
}

void take_persistent(Call call, State& state, std::shared_ptr<Communicator> order,
                     std::unique_ptr<PersistentCall> made, MPI_Request* request) {
  count_taken(call, Taken::native);
  NativePersistent& native = *made->native;
  native.order = std::move(order);
  native.number = state.next_persistent();
  if (native.packing != nullptr)
    native.slot->then = [packing = native.packing] { return packing->out(); };
  *request = native.slot->handle;
  enroll(*request, std::move(made));
}

void drop_persistent(PersistentCall& made) {
  if (made.native->slot == nullptr) return;
  MPI_Request handle = made.native->slot->handle;
  below.Request_free.pmpi(&handle);
}

namespace own {

int Start(Layer layer, MPI_Request* request) {
  Passage passage(layer);
  if (!any_persistent() || !passage.outermost() || !active() || request == nullptr)
    return passage.pass(below.Start, request);
  Starting starting;
  starting.before(*request);
  return starting.after(passage.pass(below.Start, request));
}

int Startall(Layer layer, int count, MPI_Request* requests) {
  Passage passage(layer);
  if (!any_persistent() || !passage.outermost() || !active() || requests == nullptr)
    return passage.pass(below.Startall, count, requests);
  Starting starting;
  for (int i = 0; i < count; ++i) starting.before(requests[i]);
  return starting.after(passage.pass(below.Startall, count, requests));
}

}  // namespace own

}  // namespace tutti::mpi
