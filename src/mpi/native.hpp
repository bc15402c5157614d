// Calls that may be tutti's own: a Problem is made of them, and the communicator says which path it takes.
//
// Everything that decides here is equal on all ranks of a correct program: which calls a job offers, the
// collective, operation and predefined type, and what the communicator says of Agreed.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "mpi/draft.hpp"
#include "mpi/lifecycle.hpp"
#include "mpi/passing.hpp"
#include "mpi/persistent.hpp"
#include "mpi/required.hpp"

namespace tutti::mpi {

template <Call call>
using Draft = std::conditional_t<is_plain(call), PlainDraft<call>, ArrayDraft<call>>;

template <Call call>
bool offered() {
  constexpr uint32_t bit = 1u << static_cast<uint32_t>(call);
  if ((calls_offered & bit) != 0) return true;
  // The call by which tutti takes up work where it came late.
  return call == Call::allreduce && late_active();
}

// Hands a nonblocking call to the communicator. `problem` is null for one that can only go below;
// below_call serves it then, and where the set-up that still goes on says so in the end. `then` is what is
// to be done when the call has ended well.
int start(State& state, const Problem* problem, Communicator::Below below_call,
          std::function<Status()> then, MPI_Request* request);

// The same for a call on a communicator whose set-up goes on. packing: made for the case that the call
// turns out to be tutti's.
int start_unsettled(State& state, const Problem* problem, const std::shared_ptr<Packing>& packing,
                    const std::shared_ptr<BouncedCall>& later, MPI_Request* request);

template <class AnyDraft>
int run_native(Call call, State& state, AnyDraft& draft) {
  count_taken(call, Taken::native);
  // A failure is told to the peers by the call itself.
  Status status = draft.pack(false);
  if (const Status ran = state.communicator()->run(draft.problem); status.ok()) status = ran;
  if constexpr (std::is_base_of_v<LongDraft, AnyDraft>)
    if (status.ok() && draft.packing() != nullptr) status = draft.packing()->out();
  // Behind all that drives pending calls.
  complete_finished();
  return status.ok() ? MPI_SUCCESS : raise(state.handle(), status);
}

// A call that the draft cannot make a Problem of, on its way to the base.
inline int refuse_undrafted(MPI_Comm comm, Call call, Begin begin) {
  if (!native_required || begin == Begin::refused) [[likely]]
    return MPI_SUCCESS;
  return refuse_below(comm, call, "its operation or type has no name in tutti");
}

template <Call call, class Function, class... Args>
int native_blocking(const Passage& passage, MPI_Comm comm, const Next<Function>& next,
                    Args... args) {
  if (passes_all(comm)) return pass_blocking<call>(passage, comm, next, args...);
  Draft<call> draft;
  if (const Begin begin = draft.begin(args...); begin != Begin::mine) {
    if (any_unsettled())
      if (int error = keep_order(comm); error != MPI_SUCCESS) return error;
    if (int error = refuse_undrafted(comm, call, begin); error != MPI_SUCCESS) return error;
    return pass_blocking<call>(passage, comm, next, args...);
  }
  State* state = nullptr;
  if (int error = get_state(comm, &state); error != MPI_SUCCESS) return error;
  if (state == nullptr || state->communicator() == nullptr)
    return pass_blocking<call>(passage, comm, next, args...);
  if (!state->settled()) [[unlikely]]
    if (int error = settle(*state); error != MPI_SUCCESS) return error;
  Communicator& communicator = *state->communicator();
  if (is_plain(call) || communicator.wants(coll_of(call))) {
    if (!draft.finish(*state, args...)) return pass_blocking<call>(passage, comm, next, args...);
    if (communicator.choose_blocking(draft.problem.agreed) == Path::native)
      return run_native(call, *state, draft);
  }
  if (native_required) [[unlikely]]
    if (int error = refuse_below(comm, call, {}); error != MPI_SUCCESS) return error;
  return pass_blocking<call>(passage, comm, next, args...);
}

template <Call call, class Function, class... Args>
int native_nonblocking(const Passage& passage, MPI_Comm comm, MPI_Request* request,
                       const Next<Function>& next, Args... args) {
  if (passes_all(comm)) return pass_nonblocking<call>(passage, comm, request, next, given(args)...);
  Draft<call> draft;
  const Begin begin = draft.begin(given(args)...);
  State* state = nullptr;
  if (begin == Begin::mine) {
    const bool may_set_up = !runtime().set_up_by_blocking_calls;
    if (int error = get_state(comm, &state, may_set_up); error != MPI_SUCCESS) return error;
  }
  if (any_unsettled()) [[unlikely]] {
    State* unsettled = unsettled_state(comm);
    const bool mine = begin == Begin::mine && unsettled != nullptr;
    if (begin == Begin::refused || (mine && !draft.finish(*unsettled, given(args)...))) {
      // The error belongs to this call, not to the wait for it, so it cannot be queued.
      if (int error = keep_order(comm); error != MPI_SUCCESS) return error;
      return pass_nonblocking<call>(passage, comm, request, next, given(args)...);
    }
    if (int error = mine ? MPI_SUCCESS : refuse_undrafted(comm, call, begin); error != MPI_SUCCESS)
      return error;
    if (unsettled != nullptr) {
      if (mine) (void)draft.pack(true);  // the Problem carries a failure
      return start_unsettled(*unsettled, mine ? &draft.problem : nullptr, draft.packing(),
                             bounced_call<call>(comm, next.pmpi, keep(*unsettled, args)...),
                             request);
    }
  }
  if (state == nullptr || state->communicator() == nullptr) {
    if (native_required) [[unlikely]]
      if (int error = begin == Begin::mine ? refuse_below(comm, call, {})
                                           : refuse_undrafted(comm, call, begin);
          error != MPI_SUCCESS)
        return error;
    return pass_nonblocking<call>(passage, comm, request, next, given(args)...);
  }
  const Communicator& communicator = *state->communicator();
  const bool wanted = is_plain(call) || communicator.wants(coll_of(call));
  const bool drafted = wanted && draft.finish(*state, given(args)...);
  if (!drafted || communicator.choose(draft.problem.agreed) != Path::native) {
    if (native_required && drafted == wanted) [[unlikely]]
      if (int error = refuse_below(comm, call, {}); error != MPI_SUCCESS) return error;
    return pass_nonblocking<call>(passage, comm, request, next, given(args)...);
  }
  count_taken(call, Taken::native);
  (void)draft.pack(true);
  std::function<Status()> then;
  if (draft.packing() != nullptr) then = [packing = draft.packing()] { return packing->out(); };
  return start(*state, &draft.problem, {}, std::move(then), request);
}

// What the ranks tell each other of a persistent call, or-ed.
inline constexpr int persistent_on_device = 1;  // some buffer is on a device
inline constexpr int persistent_not_here = 2;   // this rank cannot have it as a native one

// One such call, made: whether its buffers are on a device here, and the native one if it can be.
struct PersistentOffer {
  int flags = 0;
  std::unique_ptr<PersistentCall> call;
};

// MPI_SUCCESS and *native: the same on all ranks. An error has been raised.
int agree_on_persistent(State& state, int flags, bool* native);
// The request of a call that all ranks have agreed on.
void take_persistent(Call call, State& state, std::shared_ptr<Communicator> order,
                     std::unique_ptr<PersistentCall> made, MPI_Request* request);

// One that is not to be.
void drop_persistent(PersistentCall& made);

template <Call call, class... Args>
PersistentOffer offer_persistent(State& state, Args... args) {
  PersistentOffer offer;
  offer.call = std::make_unique<PersistentCall>(state.handle());
  if (Ends ends; memory::live() && find_ends(state.handle(), ends)) {
    HostCopies copies;
    describe(Of<call>(), copies, ends, args...);
    if (copies.needed()) offer.flags = persistent_on_device;
  }
  offer.call->native = std::make_unique<NativePersistent>();
  NativePersistent& native = *offer.call->native;
  auto draft = std::make_shared<Draft<call>>();
  const bool can = draft->begin(args...) == Begin::mine && draft->finish(state, args...) &&
                   state.communicator()->choose(draft->problem.agreed) == Path::native &&
                   draft->reserve(true).ok() &&
                   take_persistent_slot(state.handle(), &native.slot) == MPI_SUCCESS;
  if (!can) offer.flags |= persistent_not_here;
  native.packing = draft->packing();
  native.problem = &draft->problem;
  native.draft = std::move(draft);
  return offer;
}

// taken: it is native, on all ranks. Everything up to the agreement is equal on all ranks, and so is whether
// they come to it. Persistent calls are made by all ranks in one order, and making them may wait for others.
template <Call call, class... Args>
int native_persistent(MPI_Comm comm, MPI_Request* request, bool& taken, Args... args) {
  State* state = nullptr;
  if (int error = get_state(comm, &state); error != MPI_SUCCESS) return error;
  if (state == nullptr || state->communicator() == nullptr) return MPI_SUCCESS;
  if (!state->settled())
    if (int error = settle(*state); error != MPI_SUCCESS) return error;
  const Communicator& communicator = *state->communicator();
  if (!communicator.orders_starts() || !communicator.wants(coll_of(call))) return MPI_SUCCESS;
  PersistentOffer offer = offer_persistent<call>(*state, args...);
  bool native = false;
  int error = agree_on_persistent(*state, offer.flags, &native);
  std::shared_ptr<Communicator> order;
  if (native) order = state->order_of_starts(&error);
  taken = order != nullptr;
  if (taken)
    take_persistent(call, *state, std::move(order), std::move(offer.call), request);
  else
    drop_persistent(*offer.call);
  return error;
}

}  // namespace tutti::mpi
