/* Nonblocking calls on several communicators, started and completed in another order on each rank;
 * the communicators are new, so the first calls on them set up whatever a library sets up. */
#include "legal.h"

enum { comms = 6 };

static void shuffle(int* order, unsigned seed) {
  for (int i = 0; i < comms; ++i) order[i] = i;
  for (int i = comms - 1; i > 0; --i) {
    seed = seed * 1103515245u + 12345u;
    const int j = (int)(seed >> 16) % (i + 1);
    const int kept = order[i];
    order[i] = order[j];
    order[j] = kept;
  }
}

static void round_of(MPI_Comm* comm, int** in, int** out, int count, unsigned seed,
                     int all_at_once) {
  MPI_Request requests[comms];
  int starts[comms], waits[comms];
  shuffle(starts, seed * 31 + (unsigned)rank);
  shuffle(waits, seed * 57 + (unsigned)rank);
  for (int i = 0; i < comms; ++i) {
    const int c = starts[i];
    fill(in[c], count, rank);
    memset(out[c], 0xff, count * sizeof **out);
    MPI_Iallreduce(in[c], out[c], count, MPI_INT, MPI_SUM, comm[c], &requests[c]);
  }
  if (all_at_once)
    MPI_Waitall(comms, requests, MPI_STATUSES_IGNORE);
  else
    for (int i = 0; i < comms; ++i) MPI_Wait(&requests[waits[i]], MPI_STATUS_IGNORE);
  for (int c = 0; c < comms; ++c) CHECK(is_sum(out[c], count, nranks));
}

/* The plain case of two: A, B against B, A, each waited for in the order of its start. */
static void two(MPI_Comm a, MPI_Comm b, int* in, int* out_a, int* out_b, int count) {
  MPI_Request first, second;
  const int swap = rank % 2;
  fill(in, count, rank);
  MPI_Iallreduce(in, swap ? out_b : out_a, count, MPI_INT, MPI_SUM, swap ? b : a, &first);
  MPI_Iallreduce(in, swap ? out_a : out_b, count, MPI_INT, MPI_SUM, swap ? a : b, &second);
  MPI_Wait(&first, MPI_STATUS_IGNORE);
  MPI_Wait(&second, MPI_STATUS_IGNORE);
  CHECK(is_sum(out_a, count, nranks) && is_sum(out_b, count, nranks));
}

int main(void) {
  MPI_Comm comm[comms];
  int *in[comms], *out[comms];
  start();
  for (int c = 0; c < comms; ++c) {
    in[c] = malloc(most * sizeof(int));
    out[c] = malloc(most * sizeof(int));
  }
  for (int n = 0; n < counts_size; ++n) {
    alarm(60);
    for (int c = 0; c < comms; ++c) MPI_Comm_dup(MPI_COMM_WORLD, &comm[c]);
    two(comm[0], comm[1], in[0], out[0], out[1], counts[n]);
    for (unsigned round = 0; round < 6; ++round)
      round_of(comm, in, out, counts[n], round + 1, round % 2 == 0);
    for (int c = 0; c < comms; ++c) MPI_Comm_free(&comm[c]);
  }
  for (int c = 0; c < comms; ++c) {
    free(in[c]);
    free(out[c]);
  }
  return finish();
}
