// TUTTI_REQUIRE=native: collectives of several ranks that would go to the MPI below are errors.
//
// Which do is an agreed fact, so all ranks refuse a call or none does. It is asked wherever a call is about
// to be handed on, but for what the base refuses by itself: that has the base's error.
#pragma once

#include <string_view>

#include "base/status.hpp"
#include "mpi/below.hpp"
#include "mpi/counters.hpp"

namespace tutti::mpi {

// As TUTTI_REQUIRE says; false outside of MPI_Init and MPI_Finalize.
extern bool native_required;

// Once native is required: an error raised on the communicator, or MPI_SUCCESS where the call may go on to
// the base: one rank, or between groups. why: what keeps the call from being tutti's own; empty: the
// communicator's verdict says it.
int refuse_below(MPI_Comm comm, Call call, std::string_view why);

// For calls that are begun later: says it in the log, and returns what their request ends with.
Status refused_later(MPI_Comm comm, Call call);

}  // namespace tutti::mpi
