// The collectives that tutti performs itself.
//
// An eligible call (a predefined operation on a type it is defined on, arguments that the base
// would accept, a communicator of several ranks) becomes a Problem, and the communicator says which
// path it takes. Everything that decides here is equal on all ranks of a correct program.
#include <string>

#include "base/log.hpp"
#include "mpi/bounce.hpp"
#include "mpi/entry.hpp"
#include "mpi/handles.hpp"
#include "mpi/lifecycle.hpp"
#include "mpi/requests.hpp"
#include "mpi/state.hpp"

namespace tutti::mpi {

namespace {

// What both forms of an allreduce are given.
struct Reduction {
  const void* sendbuf;
  void* recvbuf;
  int64_t count;
  MPI_Datatype datatype;
  MPI_Op op;
  MPI_Comm comm;
};

// Whether the base refuses equal send and receive buffers of this many elements: MPICH always; Open MPI
// (4.1, both forms) from two on, and works as if in place on one.
constexpr bool refuses_equal_buffers(int64_t count) {
#ifdef MPICH_VERSION
  return count > 0;
#else
  return count > 1;
#endif
}

// Arguments with which the base does nothing but say what is wrong with them.
bool bad_arguments(const Reduction& call) {
  if (call.count < 0 || call.recvbuf == MPI_IN_PLACE) return true;
  if (call.datatype == MPI_DATATYPE_NULL || call.op == MPI_OP_NULL) return true;
  if (call.count > 0) {
    if (call.sendbuf == nullptr || call.recvbuf == nullptr) return true;
    if (call.sendbuf == call.recvbuf && refuses_equal_buffers(call.count)) return true;
  }
  return false;
}

// Problems start as copies of this. g++ clears an object of their size by `rep stos`, which took half of
// the time of a call on one rank; it copies one it cannot see through by plain vector moves.
Problem blank_problem;
[[gnu::always_inline]] inline Problem blank() {
  asm("" : "+m"(blank_problem));
  return blank_problem;
}

// The call as a Problem, or false if it is for the MPI below: what tutti has no name for, and what
// the base refuses, with its own words.
bool describe(const Reduction& call, Problem& problem) {
  if (!find_reduction(call.datatype, call.op, problem.agreed.dtype, problem.agreed.op))
    return false;
  if (bad_arguments(call)) return false;
  const bool in_place = call.sendbuf == MPI_IN_PLACE;
  problem.agreed.coll = Coll::allreduce;
  problem.agreed.count = static_cast<uint64_t>(call.count);
  problem.local.in_place = in_place || call.sendbuf == call.recvbuf;
  problem.local.send = in_place ? call.recvbuf : call.sendbuf;
  problem.local.recv = call.recvbuf;
  return true;
}

// A nonblocking call that the base is going to refuse, as far as tutti can tell.
bool is_refused(const Reduction& call) {
  Reducible type;
  Op op;
  const bool both_predefined =
      handles.dtypes.find(call.datatype, type) && handles.ops.find(call.op, op);
  return both_predefined || bad_arguments(call);
}

template <class Function, class Count>
int pass_allreduce(const Passage& passage, const Next<Function>& next, const Reduction& call,
                   Count count) {
  return pass_blocking<Call::allreduce>(passage, call.comm, next, call.sendbuf, call.recvbuf, count,
                                        call.datatype, call.op, call.comm);
}
template <class Function, class Count>
int pass_iallreduce(const Passage& passage, const Next<Function>& next, const Reduction& call,
                    Count count, MPI_Request* request) {
  return pass_nonblocking<Call::allreduce>(passage, call.comm, request, next, call.sendbuf,
                                           call.recvbuf, count, call.datatype, call.op, call.comm);
}

int run_native(State& state, const Problem& problem) {
  count_taken(Call::allreduce, Taken::native);
  const Status status = state.communicator()->run(problem);
  complete_finished();
  return status.ok() ? MPI_SUCCESS : raise(state.handle(), status);
}

template <class Function, class Count>
int allreduce(Layer layer, const Next<Function>& next, const void* sendbuf, void* recvbuf,
              Count count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  Passage passage(layer);
  if (!passage.outermost()) return passage.pass(next, sendbuf, recvbuf, count, datatype, op, comm);
  count_call(Call::allreduce);
  if (!active() && !late_active())
    return passage.pass(next, sendbuf, recvbuf, count, datatype, op, comm);
  const Reduction call = {sendbuf, recvbuf, count, datatype, op, comm};
  Problem problem = blank();
  if (!describe(call, problem)) {
    if (any_unsettled())
      if (int error = keep_order(comm); error != MPI_SUCCESS) return error;
    return pass_allreduce(passage, next, call, count);
  }
  State* state = nullptr;
  if (int error = get_state(comm, &state); error != MPI_SUCCESS) return error;
  if (state == nullptr || state->communicator() == nullptr)
    return pass_allreduce(passage, next, call, count);
  if (!state->settled()) [[unlikely]]
    if (int error = settle(*state); error != MPI_SUCCESS) return error;
  if (state->communicator()->choose(problem.agreed) == Path::native)
    return run_native(*state, problem);
  return pass_allreduce(passage, next, call, count);
}

// Hands a nonblocking call to the communicator. `problem` is null for one that can only go below;
// below_call serves it then, and where the set-up that still goes on says so in the end.
int start(State& state, const Problem* problem, Communicator::Below below_call,
          MPI_Request* request) {
  Slot* slot = nullptr;
  if (int error = take_slot(state.handle(), &slot); error != MPI_SUCCESS) return error;
  // The request is there before the call can finish in another thread.
  *request = slot->handle;
  Communicator& communicator = *state.communicator();
  const Status status = problem != nullptr
                            ? communicator.start(*problem, std::move(below_call), slot->request)
                            : communicator.start_below(std::move(below_call), slot->request);
  complete_finished();
  if (status.ok()) return MPI_SUCCESS;
  *request = MPI_REQUEST_NULL;
  drop_slot(slot);
  return raise(state.handle(), status);
}

template <class Function, class Count>
int start_unsettled(State& state, const Problem* problem, const Next<Function>& next,
                    const Reduction& call, Count count, MPI_Request* request) {
  std::shared_ptr<BouncedCall> later = bounced_call<Call::allreduce>(
      call.comm, next.pmpi, call.sendbuf, call.recvbuf, count, call.datatype, call.op, call.comm);
  std::shared_ptr<Deferral> deferral =
      defer(state, problem != nullptr ? &problem->agreed : nullptr);
  const auto begin = [later, deferral] {
    const Status status = later->start();
    deferral->begun.store(true, std::memory_order_release);
    return status;
  };
  return start(state, problem, {begin, [later] { return later->test(); }}, request);
}

template <class Function, class Count>
int iallreduce(Layer layer, const Next<Function>& next, const void* sendbuf, void* recvbuf,
               Count count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  Passage passage(layer);
  if (!passage.outermost())
    return passage.pass(next, sendbuf, recvbuf, count, datatype, op, comm, request);
  count_call(Call::allreduce);
  if (!active() && !late_active())
    return passage.pass(next, sendbuf, recvbuf, count, datatype, op, comm, request);
  const Reduction call = {sendbuf, recvbuf, count, datatype, op, comm};
  Problem problem = blank();
  State* state = nullptr;
  const bool eligible = describe(call, problem);
  if (eligible) {
    const bool may_set_up = !runtime().set_up_by_blocking_calls;
    if (int error = get_state(comm, &state, may_set_up); error != MPI_SUCCESS) return error;
  }
  if (any_unsettled()) [[unlikely]] {
    if (!eligible && is_refused(call)) {
      // The error belongs to this call, not to the wait for it, so it cannot be queued.
      if (int error = keep_order(comm); error != MPI_SUCCESS) return error;
    } else if (State* unsettled = unsettled_state(comm)) {
      return start_unsettled(*unsettled, eligible ? &problem : nullptr, next, call, count, request);
    }
  }
  if (state == nullptr || state->communicator() == nullptr)
    return pass_iallreduce(passage, next, call, count, request);
  if (state->communicator()->choose(problem.agreed) != Path::native)
    return pass_iallreduce(passage, next, call, count, request);
  count_taken(Call::allreduce, Taken::native);
  return start(*state, &problem, {}, request);
}

}  // namespace

namespace own {

int Allreduce(Layer layer, const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype,
              MPI_Op op, MPI_Comm comm) {
  return allreduce(layer, below.Allreduce, sendbuf, recvbuf, count, datatype, op, comm);
}

int Iallreduce(Layer layer, const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype,
               MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  return iallreduce(layer, below.Iallreduce, sendbuf, recvbuf, count, datatype, op, comm, request);
}

#if TUTTI_MPI_LARGE_COUNT
int Allreduce_c(Layer layer, const void* sendbuf, void* recvbuf, MPI_Count count,
                MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  return allreduce(layer, below.Allreduce_c, sendbuf, recvbuf, count, datatype, op, comm);
}

int Iallreduce_c(Layer layer, const void* sendbuf, void* recvbuf, MPI_Count count,
                 MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  return iallreduce(layer, below.Iallreduce_c, sendbuf, recvbuf, count, datatype, op, comm,
                    request);
}
#endif  // TUTTI_MPI_LARGE_COUNT

namespace {

// A duplicate is a collective on `comm`, and its request is completed like any other.
template <class Function, class... Args>
int duplicate(Layer layer, MPI_Comm comm, MPI_Request* request, const Next<Function>& next,
              Args... args) {
  Passage passage(layer);
  if (passage.outermost() && any_unsettled()) [[unlikely]]
    if (State* state = unsettled_state(comm))
      return start_later(
          *state, request,
          std::make_shared<BouncedCall>(
              Call::barrier, [](HostCopies&) {},
              [function = next.pmpi, args...](const HostCopies&, MPI_Request* inner) {
                return function(args..., inner);
              }));
  return passage.pass(next, args..., request);
}

}  // namespace

int Comm_idup(Layer layer, MPI_Comm comm, MPI_Comm* newcomm, MPI_Request* request) {
  return duplicate(layer, comm, request, below.Comm_idup, comm, newcomm);
}

#if TUTTI_MPI_IDUP_WITH_INFO
int Comm_idup_with_info(Layer layer, MPI_Comm comm, MPI_Info info, MPI_Comm* newcomm,
                        MPI_Request* request) {
  return duplicate(layer, comm, request, below.Comm_idup_with_info, comm, info, newcomm);
}
#endif  // TUTTI_MPI_IDUP_WITH_INFO

}  // namespace own

}  // namespace tutti::mpi
