// What tutti does of collectives beyond the generated entries: nonblocking calls on their way to the
// communicator, the duplication of communicators, and the reduction of one rank by itself.
#include "mpi/entry.hpp"
#include "mpi/native.hpp"
#include "mpi/requests.hpp"
#include "mpi/required.hpp"

namespace tutti::mpi {

int start(State& state, const Problem* problem, Communicator::Below below_call,
          std::function<Status()> then, MPI_Request* request) {
  Slot* slot = nullptr;
  if (int error = take_slot(state.handle(), &slot); error != MPI_SUCCESS) return error;
  // Both are there before the call can finish in another thread.
  *request = slot->handle;
  slot->then = std::move(then);
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

int start_unsettled(State& state, const Problem* problem, const std::shared_ptr<Packing>& packing,
                    const std::shared_ptr<BouncedCall>& later, MPI_Request* request) {
  std::shared_ptr<Deferral> deferral =
      defer(state, later->call(), problem != nullptr ? &problem->agreed : nullptr);
  const auto begin = [later, deferral, comm = state.handle()] {
    const Status status = native_required ? refused_later(comm, later->call()) : later->start();
    deferral->begun.store(true, std::memory_order_release);
    return status;
  };
  std::function<Status()> then;
  // Whoever unpacks sees that the call has ended, and so whether it went below.
  if (packing != nullptr)
    then = [packing, deferral] {
      return deferral->begun.load(std::memory_order_acquire) ? Status() : packing->out();
    };
  return start(state, problem, {begin, [later] { return later->test(); }}, std::move(then),
               request);
}

namespace own {

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

namespace {

// The arguments of MPI_Reduce_local in either form.
template <class Count>
struct LocalReduction {
  const void* in;
  void* inout;
  Count count;
  MPI_Datatype type;
  MPI_Op op;
};

// The base works on host copies of what is on a device.
template <class Function, class Count>
int reduce_local(Layer layer, const Next<Function>& next, const LocalReduction<Count>& call) {
  Passage passage(layer);
  const auto pass = [&](const void* in, void* inout) {
    return passage.pass(next, in, inout, call.count, call.type, call.op);
  };
  if (!passage.outermost() || !active() || !memory::live()) [[likely]]
    return pass(call.in, call.inout);
  HostCopies copies;
  copies.add(call.in, run_of(call.count, call.type), Access::read);
  copies.add(call.inout, run_of(call.count, call.type), Access::read_write);
  if (!copies.needed()) return pass(call.in, call.inout);
  // The call has no communicator: MPI has its errors on this one.
  if (const Status status = copies.copy_in(); !status.ok()) return raise(MPI_COMM_WORLD, status);
  const int error = pass(copies.host(0), copies.host(1));
  if (error != MPI_SUCCESS) return error;
  const Status status = copies.copy_out();
  return status.ok() ? MPI_SUCCESS : raise(MPI_COMM_WORLD, status);
}

}  // namespace

int Reduce_local(Layer layer, const void* inbuf, void* inoutbuf, int count, MPI_Datatype datatype,
                 MPI_Op op) {
  return reduce_local(layer, below.Reduce_local,
                      LocalReduction<int>{inbuf, inoutbuf, count, datatype, op});
}

#if TUTTI_MPI_LARGE_COUNT
int Reduce_local_c(Layer layer, const void* inbuf, void* inoutbuf, MPI_Count count,
                   MPI_Datatype datatype, MPI_Op op) {
  return reduce_local(layer, below.Reduce_local_c,
                      LocalReduction<MPI_Count>{inbuf, inoutbuf, count, datatype, op});
}
#endif  // TUTTI_MPI_LARGE_COUNT

}  // namespace own

}  // namespace tutti::mpi
