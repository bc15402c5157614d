// What the generated entries are made of.
//
// blocking, ordered: passed on to the next symbol; they keep their place behind calls that tutti
// has queued on the communicator while its set-up goes on (State, state.hpp). nonblocking: the
// same, but where a blocking call waits, it is queued itself. own: written by hand.
#pragma once

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "mpi/below.hpp"
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

template <class Function, class... Args>
int blocking(Layer layer, Call call, MPI_Comm comm, const Next<Function>& next, Args... args) {
  Passage passage(layer);
  if (passage.outermost()) {
    count_call(call);
    if (any_unsettled()) [[unlikely]]
      if (int error = keep_order(comm); error != MPI_SUCCESS) return error;
  }
  return passage.pass(next, args...);
}

template <class Function, class... Args>
int nonblocking(Layer layer, Call call, MPI_Comm comm, MPI_Request* request,
                const Next<Function>& next, Args... args) {
  Passage passage(layer);
  if (passage.outermost()) {
    count_call(call);
    if (any_unsettled()) [[unlikely]] {
      if (State* state = unsettled_state(comm)) {
        return start_later(*state, request,
                           [function = next.pmpi,
                            kept = std::make_tuple(keep(*state, args)...)](MPI_Request* inner) {
                             return std::apply(
                                 [&](const auto&... arg) { return function(use(arg)..., inner); },
                                 kept);
                           });
      }
    }
  }
  return passage.pass(next, given(args)..., request);
}

// The entries that are written by hand.
namespace own {
#define TUTTI_OWN(name, ...) int name(Layer layer __VA_OPT__(, ) __VA_ARGS__);
#include "mpi/own.def"
#undef TUTTI_OWN
}  // namespace own

}  // namespace tutti::mpi
