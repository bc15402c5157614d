/* MPI_THREAD_MULTIPLE: threads, each with a communicator of its own, call as they like; their order
 * differs between ranks. Blocking and nonblocking calls, and point-to-point messages beside them.
 */
#include <pthread.h>

#include "legal.h"

enum { threads = 3, rounds = 60, thread_count = 5000 };

static MPI_Comm comm[threads];

static void* work(void* argument) {
  const int me = (int)(size_t)argument;
  int* in = malloc(thread_count * sizeof *in);
  int* out = malloc(thread_count * sizeof *out);
  for (int round = 0; round < rounds; ++round) {
    const int count = 1 + (round * 977 + me * 131) % thread_count;
    MPI_Request requests[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    int ring_in = -1;
    const int ring_out = rank;
    fill(in, count, rank);
    memset(out, 0xff, count * sizeof *out);
    if (round % 3 == 0) {
      MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm[me]);
    } else {
      MPI_Irecv(&ring_in, 1, MPI_INT, (rank + nranks - 1) % nranks, 4, comm[me], &requests[0]);
      MPI_Iallreduce(in, out, count, MPI_INT, MPI_SUM, comm[me], &requests[1]);
      MPI_Isend(&ring_out, 1, MPI_INT, (rank + 1) % nranks, 4, comm[me], &requests[2]);
      if (round % 3 == 1) {
        MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
      } else {
        int flag = 0;
        while (!flag) MPI_Testall(3, requests, &flag, MPI_STATUSES_IGNORE);
      }
      CHECK(ring_in == (rank + nranks - 1) % nranks);
    }
    CHECK(is_sum(out, count, nranks));
  }
  free(in);
  free(out);
  return NULL;
}

int main(void) {
  pthread_t id[threads];
  int provided = 0;
  alarm(60);
  MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &nranks);
  if (provided < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    return 77;
  }
  for (int t = 0; t < threads; ++t) MPI_Comm_dup(MPI_COMM_WORLD, &comm[t]);
  for (int t = 0; t < threads; ++t) {
    const int mine = (t + rank) % threads;
    pthread_create(&id[t], NULL, work, (void*)(size_t)mine);
  }
  for (int t = 0; t < threads; ++t) pthread_join(id[t], NULL);
  for (int t = 0; t < threads; ++t) MPI_Comm_free(&comm[t]);
  return finish();
}
