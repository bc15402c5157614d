/* The chain rule (below.hpp): tutti with a PMPI tool before it, behind it, or alone. Each layer sees
 * each call once; a tool behind tutti sees the calls that tutti passes on, one before it sees all.
 * argv[1]: alone, before, behind, none (tool without tutti). */
#include <mpi.h>
#include <string.h>

#include "check.h"

static int tool(const char* counter) {
  int* value = (int*)dlsym(RTLD_DEFAULT, counter);
  return value == NULL ? 0 : *value;
}

static void add(void* in, void* inout, int* n, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *n; ++i) ((int*)inout)[i] += ((int*)in)[i];
}

int main(int argc, char** argv) {
  const char* order = argc > 1 ? argv[1] : "none";
  const int with_tool = strcmp(order, "alone") != 0;
  const int with_tutti = strcmp(order, "none") != 0;
  const int behind = strcmp(order, "behind") == 0;
  enum { native = 5, passed = 3, bcasts = 4, nonblocking = 2 };
  int rank, size, one = 1, sum = 0;
  MPI_Op op;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Op_create(add, 1, &op);
  for (int i = 0; i < native; ++i) {
    sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK_EQUAL(sum, size);
  }
  for (int i = 0; i < passed; ++i) {
    sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, op, MPI_COMM_WORLD);
    CHECK_EQUAL(sum, size);
  }
  for (int i = 0; i < bcasts; ++i) {
    sum = rank == 0 ? 42 + i : 0;
    MPI_Bcast(&sum, 1, MPI_INT, 0, MPI_COMM_WORLD);
    CHECK_EQUAL(sum, 42 + i);
  }
  for (int i = 0; i < nonblocking; ++i) {
    MPI_Request request;
    sum = 0;
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK_EQUAL(sum, size);
  }
  MPI_Op_free(&op);
  if (with_tutti) {
    CHECK_EQUAL(count_calls("allreduce"), native + passed + nonblocking);
    CHECK_EQUAL(count_calls("bcast"), bcasts);
    CHECK_EQUAL(count_path("allreduce", BELOW), size == 1 ? native + passed + nonblocking : passed);
  }
  if (with_tool) {
    /* A tool behind tutti does not see what tutti did itself. */
    const int hidden = behind && size > 1;
    CHECK_EQUAL(tool("tool_inits"), 1);
    CHECK_EQUAL(tool("tool_allreduces"), passed + (hidden ? 0 : native));
    /* Where a device is possible, tutti does these itself. */
    CHECK_EQUAL(tool("tool_bcasts"), behind ? count_path("bcast", BELOW) : bcasts);
    CHECK_EQUAL(tool("tool_iallreduces"), hidden ? 0 : nonblocking);
    /* While its thread drives progress, tutti waits by testing. */
    if (!with_tutti || getenv("TUTTI_PROGRESS") == NULL ||
        strcmp(getenv("TUTTI_PROGRESS"), "hook") == 0)
      CHECK_EQUAL(tool("tool_waits"), nonblocking);
  }
  MPI_Finalize();
  if (with_tool) CHECK_EQUAL(tool("tool_finalizes"), 1);
  return failures != 0;
}
