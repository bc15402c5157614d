#include "mpi/required.hpp"

#include <string>

#include "base/log.hpp"
#include "mpi/state.hpp"

namespace tutti::mpi {

bool native_required = false;

namespace {

bool one_rank_or_inter(MPI_Comm comm) {
  int inter = 0;
  int nranks = 0;
  if (comm == MPI_COMM_NULL) return true;
  // An error here is one that the base is going to raise.
  if (below.Comm_test_inter(comm, &inter) != MPI_SUCCESS || inter != 0) return true;
  return below.Comm_size(comm, &nranks) != MPI_SUCCESS || nranks < 2;
}

std::string verdict_of(MPI_Comm comm) {
  State* state = nullptr;
  if (look_up_state(comm, false, &state) != MPI_SUCCESS || state == nullptr ||
      state->communicator() == nullptr)
    return "no blocking call has set the communicator up";
  return state->communicator()->describe();
}

}  // namespace

Status refused_later(MPI_Comm comm, Call call) {
  TUTTI_ERROR("mpi",
              "{}: TUTTI_REQUIRE names native, but this {} is left to the MPI below; here is: {}",
              name_of(comm), call_names[static_cast<size_t>(call)], verdict_of(comm));
  return Code::not_native;
}

int refuse_below(MPI_Comm comm, Call call, std::string_view why) {
  if (one_rank_or_inter(comm)) return MPI_SUCCESS;
  if (why.empty()) return raise(comm, refused_later(comm, call));
  TUTTI_ERROR("mpi", "{}: TUTTI_REQUIRE names native, but this {} is left to the MPI below: {}",
              name_of(comm), call_names[static_cast<size_t>(call)], why);
  return raise(comm, Code::not_native);
}

}  // namespace tutti::mpi
