/* What all legal programs share. Each is plain MPI and knows nothing of tutti; a hang ends by the
 * program's own alarm. Exit 0 passed, 77 not possible here, anything else failed. */
#ifndef LEGAL_H
#define LEGAL_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, nranks;

#define CHECK(condition)                                                                       \
  do {                                                                                         \
    if (!(condition)) {                                                                        \
      fprintf(stderr, "%s:%d: rank %d of %d: %s is false\n", __FILE__, __LINE__, rank, nranks, \
              #condition);                                                                     \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                            \
    }                                                                                          \
  } while (0)

static inline void start(void) {
  alarm(60);
  MPI_Init(NULL, NULL);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &nranks);
}

/* For programs that need more ranks: all leave, and the runner counts a skip. */
static inline void need_ranks(int least) {
  if (nranks >= least) return;
  MPI_Finalize();
  exit(77);
}

static inline int finish(void) {
  MPI_Finalize();
  return 0;
}

/* in[i] = rank + i; the sum over a communicator in which ranks are 0..size-1. */
static inline void fill(int* in, int count, int of_rank) {
  for (int i = 0; i < count; ++i) in[i] = of_rank + i;
}
static inline int is_sum(const int* out, int count, int size) {
  for (int i = 0; i < count; ++i)
    if (out[i] != size * (size - 1) / 2 + size * i) return 0;
  return 1;
}

/* Below and above what fits one line, one page, one rendezvous threshold. */
static const int counts[] = {1, 17, 1000, 1 << 18};
enum { counts_size = sizeof counts / sizeof counts[0], most = 1 << 18 };

#endif
