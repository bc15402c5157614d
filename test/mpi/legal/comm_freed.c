/* A communicator is freed while calls on it are pending: they complete as if it were not. (Open
 * MPI 4.1 by itself crashes here.) */
#include "legal.h"

enum { calls = 3, freed_count = 20000 };

static void go(int count) {
  MPI_Comm comm;
  MPI_Request requests[calls];
  int* in = malloc(count * sizeof *in);
  int* out[calls];
  fill(in, count, rank);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (int i = 0; i < calls; ++i) {
    out[i] = malloc(count * sizeof **out);
    memset(out[i], 0xff, count * sizeof **out);
    MPI_Iallreduce(in, out[i], count, MPI_INT, MPI_SUM, comm, &requests[i]);
  }
  MPI_Comm_free(&comm);
  CHECK(comm == MPI_COMM_NULL);
  MPI_Waitall(calls, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < calls; ++i) {
    CHECK(is_sum(out[i], count, nranks));
    free(out[i]);
  }
  free(in);
}

int main(void) {
  start();
  for (int round = 0; round < 10; ++round) {
    go(1);
    go(freed_count);
  }
  return finish();
}
