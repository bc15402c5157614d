// Which bytes of memory a datatype touches.
//
// Needed where tutti moves the program's bytes itself: what lies in the gaps of a type is not the
// call's, another pending call may be writing it, so it must not be written back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/strips.hpp"
#include "mpi/below.hpp"

namespace tutti::mpi {

using Runs = std::vector<Run>;

struct Layout {
  Runs runs;          // of one element
  bool exact = true;  // false: the runs hold gaps too
  // The elements lie in memory in the order of the type, each byte once; so packing keeps the order.
  bool ordered = true;
};

// Beyond this many runs a layout is one run over all, and not exact: 64 MiB of runs.
inline constexpr size_t run_limit = size_t{1} << 22;

// Reads a committed datatype by MPI_Type_get_contents. Darray types and those made by large-count
// constructors are not exact.
Layout layout_of(MPI_Datatype datatype);
// The same with the runs in the order of the type, in which its elements are packed; they may overlap.
Layout packing_order_of(MPI_Datatype datatype);

// Adds `count` elements, the first at `at`, each `stride` bytes behind the one before; neighbouring
// runs become one.
void repeat(const Runs& element, int64_t count, ptrdiff_t stride, ptrdiff_t at, Runs& runs);
// Sorts; runs that touch or overlap become one. Returns whether they were in order and did not overlap.
bool merge(Runs& runs);

}  // namespace tutti::mpi
