/* Datatype and operation are freed before the call that uses them has completed: they live on until
 * it has. */
#include "legal.h"

enum { freed_count = 20000 };

static void add_pairs(void* in, void* inout, int* count, MPI_Datatype* type) {
  const int* a = in;
  int* b = inout;
  (void)type;
  for (int i = 0; i < 2 * *count; ++i) b[i] += a[i];
}

static void go(int count, int user) {
  int* in = malloc(2 * count * sizeof *in);
  int* out = malloc(2 * count * sizeof *out);
  MPI_Datatype pair = MPI_INT;
  MPI_Op op = MPI_SUM;
  MPI_Request requests[2];
  fill(in, 2 * count, rank);
  memset(out, 0xff, 2 * count * sizeof *out);
  if (user) {
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    MPI_Op_create(add_pairs, 1, &op);
  }
  MPI_Iallreduce(in, out, user ? count : 2 * count, pair, op, MPI_COMM_WORLD, &requests[0]);
  MPI_Ibarrier(MPI_COMM_WORLD, &requests[1]);
  if (user) {
    MPI_Op_free(&op);
    MPI_Type_free(&pair);
  }
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  CHECK(is_sum(out, 2 * count, nranks));
  free(in);
  free(out);
}

int main(void) {
  start();
  for (int round = 0; round < 10; ++round)
    for (int user = 0; user < 2; ++user) {
      go(1, user);
      go(freed_count, user);
    }
  return finish();
}
