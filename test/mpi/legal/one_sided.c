/* One-sided access whose target already sits in an allreduce that the origin enters only
 * afterwards. (MPICH 4.0 by itself gets wrong values here.) */
#include "legal.h"

static int *in, *out;

static void check_allreduce(int count) {
  fill(in, count, rank);
  memset(out, 0xff, count * sizeof *out);
  MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CHECK(is_sum(out, count, nranks));
}

static void get_from_allreduce(int count) {
  int* exposed;
  int got = -1;
  MPI_Win window;
  MPI_Win_allocate(sizeof *exposed, sizeof *exposed, MPI_INFO_NULL, MPI_COMM_WORLD, &exposed,
                   &window);
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
  *exposed = 100 + rank;
  MPI_Win_unlock(rank, window);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    MPI_Win_lock(MPI_LOCK_SHARED, nranks - 1, 0, window);
    MPI_Get(&got, 1, MPI_INT, nranks - 1, 0, 1, MPI_INT, window);
    MPI_Win_unlock(nranks - 1, window);
    CHECK(got == 100 + nranks - 1);
  }
  check_allreduce(count);
  MPI_Win_free(&window);
}

int main(void) {
  start();
  need_ranks(2);
  in = malloc(most * sizeof *in);
  out = malloc(most * sizeof *out);
  for (int c = 0; c < counts_size; ++c) get_from_allreduce(counts[c]);
  free(in);
  free(out);
  return finish();
}
