/* Blocking collectives while nonblocking ones are pending on the same communicator, waited for in
 * reverse; many outstanding at once; several Comm_idup outstanding. */
#include "legal.h"

enum { outstanding = 40, pending_count = 2000 };

static void reverse(int count) {
  int* in = malloc(count * sizeof *in);
  int* out[3];
  MPI_Request requests[3];
  int root_value = rank == 0 ? 99 : 0;
  fill(in, count, rank);
  for (int i = 0; i < 3; ++i) {
    out[i] = malloc(count * sizeof **out);
    memset(out[i], 0xff, count * sizeof **out);
  }
  MPI_Iallreduce(in, out[0], count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
  MPI_Allreduce(in, out[1], count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Ibcast(&root_value, 1, MPI_INT, 0, MPI_COMM_WORLD, &requests[1]);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Iallreduce(in, out[2], count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[2]);
  for (int i = 2; i >= 0; --i) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
  for (int i = 0; i < 3; ++i) {
    CHECK(is_sum(out[i], count, nranks));
    free(out[i]);
  }
  CHECK(root_value == 99);
  free(in);
}

static void many(int count) {
  MPI_Request requests[outstanding];
  int* in = malloc(count * sizeof *in);
  int* out = malloc((size_t)outstanding * count * sizeof *out);
  fill(in, count, rank);
  memset(out, 0xff, (size_t)outstanding * count * sizeof *out);
  for (int i = 0; i < outstanding; ++i)
    MPI_Iallreduce(in, out + (size_t)i * count, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
                   &requests[i]);
  MPI_Waitall(outstanding, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < outstanding; ++i) CHECK(is_sum(out + (size_t)i * count, count, nranks));
  free(in);
  free(out);
}

static void idup(void) {
  MPI_Comm comm[5];
  MPI_Request requests[5];
  for (int i = 0; i < 5; ++i) MPI_Comm_idup(MPI_COMM_WORLD, &comm[i], &requests[i]);
  MPI_Waitall(5, requests, MPI_STATUSES_IGNORE);
  for (int i = 4; i >= 0; --i) {
    int in[3], out[3] = {-1, -1, -1};
    fill(in, 3, rank);
    MPI_Allreduce(in, out, 3, MPI_INT, MPI_SUM, comm[i]);
    CHECK(is_sum(out, 3, nranks));
    MPI_Comm_free(&comm[i]);
  }
}

int main(void) {
  start();
  for (int round = 0; round < 5; ++round) {
    reverse(1);
    reverse(pending_count);
    reverse(most);
    many(1);
    many(pending_count);
    idup();
  }
  return finish();
}
