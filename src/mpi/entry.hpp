// What the generated entries are made of.
//
// blocking, ordered: passed on to the next symbol; they keep their place behind calls that tutti
// has queued on the communicator while its set-up goes on (State, state.hpp). nonblocking: the
// same, but where a blocking call waits, it is queued itself. Both give the MPI below host copies of
// buffers on a device. own: written by hand.
#pragma once

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "mpi/below.hpp"
#include "mpi/bounce.hpp"
#include "mpi/buffers.hpp"
#include "mpi/counters.hpp"
#include "mpi/state.hpp"

#define TUTTI_ENTRY __attribute__((visibility("default")))

namespace tutti::mpi {

// An array argument of a nonblocking call. A call that is begun later keeps a copy: Fortran layers
// free theirs when the call returns.
template <class T>
struct Array {
  const T* first;
  Extent extent;
  bool read;  // by this rank, in this call
};
template <class T>
Array<T> per_rank(const T* first) {
  return {first, Extent::ranks, true};
}
template <class T>
Array<T> per_source(const T* first) {
  return {first, Extent::sources, true};
}
template <class T>
Array<T> per_target(const T* first) {
  return {first, Extent::targets, true};
}
// Read at the root alone.
template <class T>
struct RootArray {
  const T* first;
  int root;
};
template <class T>
RootArray<T> at_root(const T* first, int root) {
  return {first, root};
}
template <class T>
Array<T> unless_in_place(const T* first, const void* sendbuf) {
  return {first, Extent::ranks, sendbuf != MPI_IN_PLACE};
}

// given: the argument as the program passed it. keep: the same for a later call. use: back to C.
template <class T>
T given(T value) {
  return value;
}
template <class T>
const T* given(const Array<T>& array) {
  return array.first;
}
template <class T>
const T* given(const RootArray<T>& array) {
  return array.first;
}
template <class T>
struct Kept {
  std::vector<T> copy;
  const T* first;  // when there is no copy
};
template <class T>
T keep(const State&, T value) {
  return value;
}
template <class T>
Kept<T> keep(const State& state, const Array<T>& array) {
  const int n = array.read && array.first != nullptr ? state.extent(array.extent) : 0;
  return {std::vector<T>(array.first, array.first + n), array.first};
}
template <class T>
Kept<T> keep(const State& state, const RootArray<T>& array) {
  return keep(state, Array<T>{array.first, Extent::ranks, array.root == state.rank()});
}
template <class T>
T use(const T& value) {
  return value;
}
template <class T>
const T* use(const Kept<T>& kept) {
  return kept.copy.empty() ? kept.first : kept.copy.data();
}

template <class Function, class... Args>
int ordered(Layer layer, MPI_Comm comm, const Next<Function>& next, Args... args) {
  Passage passage(layer);
  if (passage.outermost() && any_unsettled()) [[unlikely]]
    if (int error = keep_order(comm); error != MPI_SUCCESS) return error;
  return passage.pass(next, args...);
}

// The MPI below on host copies, where this rank's buffers are on a device.
template <Call call, class Function, class... Args>
int pass_blocking(const Passage& passage, MPI_Comm comm, const Next<Function>& next, Args... args) {
  Ends ends;
  if (!memory::live() || !find_ends(comm, ends)) [[likely]]
    return passage.pass(next, args...);
  HostCopies copies;
  describe(Of<call>(), copies, ends, args...);
  if (!copies.needed()) return passage.pass(next, args...);
  count_taken(call, Taken::bounce);
  const Status in = copies.copy_in();
  if (in == Status(Code::no_memory)) return raise(comm, in);
  const int error = with_copies(
      copies, [&](auto... arg) { return passage.pass(next, arg...); }, args...);
  if (error != MPI_SUCCESS) return error;
  const Status out = copies.copy_out();
  const Status& status = in.ok() ? out : in;
  return status.ok() ? MPI_SUCCESS : raise(comm, status);
}

// A nonblocking call as a value, begun now or later.
template <Call call, class Function, class... Args>
std::shared_ptr<BouncedCall> bounced_call(MPI_Comm comm, Function* function, Args... args) {
  auto kept = std::make_shared<std::tuple<Args...>>(std::move(args)...);
  return std::make_shared<BouncedCall>(
      call,
      [kept, comm](HostCopies& copies) {
        Ends ends;
        if (!memory::live() || !find_ends(comm, ends)) return;
        std::apply([&](const auto&... arg) { describe(Of<call>(), copies, ends, use(arg)...); },
                   *kept);
      },
      [kept, function](const HostCopies& copies, MPI_Request* inner) {
        return std::apply(
            [&](const auto&... arg) {
              return with_copies(
                  copies, [&](auto... to) { return function(to..., inner); }, use(arg)...);
            },
            *kept);
      });
}

template <Call call, class Function, class... Args>
int pass_nonblocking(const Passage& passage, MPI_Comm comm, MPI_Request* request,
                     const Next<Function>& next, Args... args) {
  Ends ends;
  if (memory::live() && find_ends(comm, ends)) [[unlikely]] {
    HostCopies copies;
    describe(Of<call>(), copies, ends, args...);
    if (copies.needed())
      return start_bounced(comm, bounced_call<call>(comm, next.pmpi, args...), request);
  }
  return passage.pass(next, args..., request);
}

template <Call call, class Function, class... Args>
int blocking(Layer layer, MPI_Comm comm, const Next<Function>& next, Args... args) {
  Passage passage(layer);
  if (!passage.outermost()) return passage.pass(next, args...);
  count_call(call);
  if (any_unsettled()) [[unlikely]]
    if (int error = keep_order(comm); error != MPI_SUCCESS) return error;
  return pass_blocking<call>(passage, comm, next, args...);
}

template <Call call, class Function, class... Args>
int nonblocking(Layer layer, MPI_Comm comm, MPI_Request* request, const Next<Function>& next,
                Args... args) {
  Passage passage(layer);
  if (!passage.outermost()) return passage.pass(next, given(args)..., request);
  count_call(call);
  if (any_unsettled()) [[unlikely]]
    if (State* state = unsettled_state(comm))
      return start_later(*state, request,
                         bounced_call<call>(comm, next.pmpi, keep(*state, args)...));
  return pass_nonblocking<call>(passage, comm, request, next, given(args)...);
}

// MPI_X_init: the calls to come are the base's, which takes no device memory.
template <Call call, class Function, class... Args>
int persistent(Layer layer, MPI_Comm comm, MPI_Info info, MPI_Request* request,
               const Next<Function>& next, Args... args) {
  Passage passage(layer);
  if (!passage.outermost()) return passage.pass(next, args..., info, request);
  count_call(call);
  if (any_unsettled()) [[unlikely]]
    if (int error = keep_order(comm); error != MPI_SUCCESS) return error;
  Ends ends;
  if (memory::live() && find_ends(comm, ends)) [[unlikely]] {
    HostCopies copies;
    describe(Of<call>(), copies, ends, args...);
    if (copies.needed()) return refuse_persistent(call, comm);
  }
  return passage.pass(next, args..., info, request);
}

// The entries that are written by hand.
namespace own {
#define TUTTI_OWN(name, ...) int name(Layer layer __VA_OPT__(, ) __VA_ARGS__);
#include "mpi/own.def"
#undef TUTTI_OWN
}  // namespace own

}  // namespace tutti::mpi
