// What the generated entries are made of.
//
// blocking, ordered: passed on to the next symbol; they keep their place behind calls that tutti
// has queued on the communicator while its set-up goes on (State, state.hpp). nonblocking: the
// same, but where a blocking call waits, it is queued itself. Both give the MPI below host copies of
// buffers on a device. own: written by hand.
#pragma once

#include <memory>
#include <utility>

#include "mpi/native.hpp"
#include "mpi/passing.hpp"
#include "mpi/persistent.hpp"

#define TUTTI_ENTRY __attribute__((visibility("default")))

namespace tutti::mpi {

template <class Function, class... Args>
int ordered(Layer layer, MPI_Comm comm, const Next<Function>& next, Args... args) {
  Passage passage(layer);
  if (passage.outermost() && any_unsettled()) [[unlikely]]
    if (int error = keep_order(comm); error != MPI_SUCCESS) return error;
  return passage.pass(next, args...);
}

inline constexpr std::string_view not_ours = "tutti has none of its own";

template <Call call, class Function, class... Args>
int blocking(Layer layer, MPI_Comm comm, const Next<Function>& next, Args... args) {
  Passage passage(layer);
  if (!passage.outermost()) return passage.pass(next, args...);
  count_call(call);
  if constexpr (is_coll(call))
    if (offered<call>()) return native_blocking<call>(passage, comm, next, args...);
  if (any_unsettled()) [[unlikely]]
    if (int error = keep_order(comm); error != MPI_SUCCESS) return error;
  if (native_required) [[unlikely]]
    if (int error = refuse_below(comm, call, not_ours); error != MPI_SUCCESS) return error;
  return pass_blocking<call>(passage, comm, next, args...);
}

template <Call call, class Function, class... Args>
int nonblocking(Layer layer, MPI_Comm comm, MPI_Request* request, const Next<Function>& next,
                Args... args) {
  Passage passage(layer);
  if (!passage.outermost()) return passage.pass(next, given(args)..., request);
  count_call(call);
  if constexpr (is_coll(call))
    if (offered<call>())
      return native_nonblocking<call>(passage, comm, request, next, std::move(args)...);
  if (native_required) [[unlikely]]
    if (int error = refuse_below(comm, call, not_ours); error != MPI_SUCCESS) return error;
  if (any_unsettled()) [[unlikely]]
    if (State* state = unsettled_state(comm))
      return start_later(*state, request,
                         bounced_call<call>(comm, next.pmpi, keep(*state, args)...));
  return pass_nonblocking<call>(passage, comm, request, next, given(args)...);
}

// MPI_X_init: the calls to come are tutti's, or the base's, on host copies where buffers are on a device.
template <Call call, class Function, class... Args>
int persistent(Layer layer, MPI_Comm comm, MPI_Info info, MPI_Request* request,
               const Next<Function>& next, Args... args) {
  Passage passage(layer);
  if (!passage.outermost()) return passage.pass(next, args..., info, request);
  count_call(call);
  if (any_unsettled()) [[unlikely]]
    if (int error = keep_order(comm); error != MPI_SUCCESS) return error;
  if constexpr (is_coll(call) && persistent_may_be_native)
    if (devices_possible && offered<call>() && !passes_all(comm)) [[unlikely]] {
      bool taken = false;
      const int error = native_persistent<call>(comm, request, taken, args...);
      if (taken || error != MPI_SUCCESS) return error;
    }
  if (native_required) [[unlikely]]
    if (int error =
            refuse_below(comm, call, "persistent calls on host memory alone are the base's");
        error != MPI_SUCCESS)
      return error;
  Ends ends;
  if (memory::live() && find_ends(comm, ends)) [[unlikely]] {
    auto bounced = std::make_unique<PersistentCall>(comm);
    describe(Of<call>(), bounced->copies, ends, args...);
    if (bounced->copies.needed()) {
      count_taken(call, Taken::bounce);
      if (Status status = bounced->copies.make(); !status.ok()) return raise(comm, status);
      const int error = with_copies(
          bounced->copies, [&](auto... arg) { return passage.pass(next, arg..., info, request); },
          args...);
      if (error == MPI_SUCCESS) enroll(*request, std::move(bounced));
      return error;
    }
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
