/* The base must move while a rank waits in an allreduce: a synchronous or long send, and one-sided
 * access, whose target already sits in the collective that the sender enters only afterwards. */
#include "legal.h"

enum { long_count = 2 << 20 };

static int *in, *out, *message;

static void check_allreduce(int count) {
  fill(in, count, rank);
  memset(out, 0xff, count * sizeof *out);
  MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CHECK(is_sum(out, count, nranks));
}

/* Every odd rank sends to its lower neighbour, which has posted its receive and entered. */
static void send_into_allreduce(int count, int length, int synchronous) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (rank % 2 != 0) {
    for (int i = 0; i < length; ++i) message[i] = rank + i;
    if (synchronous)
      MPI_Ssend(message, length, MPI_INT, rank - 1, 3, MPI_COMM_WORLD);
    else
      MPI_Send(message, length, MPI_INT, rank - 1, 3, MPI_COMM_WORLD);
  } else if (rank + 1 < nranks) {
    memset(message, 0xff, length * sizeof *message);
    MPI_Irecv(message, length, MPI_INT, rank + 1, 3, MPI_COMM_WORLD, &request);
  }
  check_allreduce(count);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  if (rank % 2 == 0 && rank + 1 < nranks)
    for (int i = 0; i < length; ++i) CHECK(message[i] == rank + 1 + i);
}

int main(void) {
  start();
  need_ranks(2);
  in = malloc(most * sizeof *in);
  out = malloc(most * sizeof *out);
  message = malloc(long_count * sizeof *message);
  for (int c = 0; c < counts_size; ++c) {
    alarm(60);
    send_into_allreduce(counts[c], 1, 1);
    send_into_allreduce(counts[c], long_count, 0);
    send_into_allreduce(counts[c], long_count, 1);
  }
  free(in);
  free(out);
  free(message);
  return finish();
}
