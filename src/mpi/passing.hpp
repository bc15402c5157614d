// The two forms of a call as it is handed on: with host copies of buffers on a device, and as a value that
// is begun later.
#pragma once

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "mpi/below.hpp"
#include "mpi/bounce.hpp"
#include "mpi/buffers.hpp"
#include "mpi/counters.hpp"
#include "mpi/state.hpp"

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

}  // namespace tutti::mpi
