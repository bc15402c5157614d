/* Requests of tutti in every completion call, mixed with the program's own, many at a time, in random
 * order; null ones beside them. argv[1]: seed. argv[2]: "settle" makes a blocking call first, without
 * which tutti takes no part where a thread drives its progress. */
#include <mpi.h>
#include <string.h>

#include "check.h"

enum { rounds = 60, most = 24 };

static unsigned state;
static int pick(int n) { /* in [0, n) */
  state = state * 1103515245u + 12345u;
  return (int)(state >> 16) % n;
}

static int null_requests(int n, const MPI_Request* requests) {
  int nulls = 0;
  for (int i = 0; i < n; ++i) nulls += requests[i] == MPI_REQUEST_NULL;
  return nulls;
}

static void complete_all(int way, int n, MPI_Request* requests) {
  int flag = 0, index, some, indices[most];
  MPI_Status statuses[most];
  switch (way) {
    case 0:
      CHECK_EQUAL(MPI_Waitall(n, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS);
      break;
    case 1:
      for (int i = n - 1; i >= 0; --i) MPI_Wait(&requests[i], &statuses[0]);
      break;
    case 2:
      for (int i = null_requests(n, requests); i < n; ++i) {
        MPI_Waitany(n, requests, &index, &statuses[0]);
        CHECK(index >= 0 && index < n && requests[index] == MPI_REQUEST_NULL);
      }
      MPI_Waitany(n, requests, &index, &statuses[0]);
      CHECK_EQUAL(index, MPI_UNDEFINED);
      break;
    case 3:
      while (null_requests(n, requests) < n) {
        MPI_Waitsome(n, requests, &some, indices, statuses);
        CHECK(some > 0);
      }
      break;
    case 4:
      while (!flag) MPI_Testall(n, requests, &flag, statuses);
      break;
    case 5:
      for (int i = 0; i < n; ++i)
        for (flag = 0; !flag;) MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
      break;
    case 6:
      while (null_requests(n, requests) < n) MPI_Testany(n, requests, &index, &flag, &statuses[0]);
      break;
    case 7:
      while (null_requests(n, requests) < n)
        MPI_Testsome(n, requests, &some, indices, MPI_STATUSES_IGNORE);
      break;
    default:
      for (int i = 0; i < n; ++i) {
        if (requests[i] == MPI_REQUEST_NULL) continue;
        for (flag = 0; !flag;) MPI_Request_get_status(requests[i], &flag, &statuses[0]);
        CHECK(requests[i] != MPI_REQUEST_NULL);
      }
      MPI_Waitall(n, requests, statuses);
  }
  CHECK_EQUAL(null_requests(n, requests), n);
}

int main(int argc, char** argv) {
  int rank, size;
  double in[most], out[most];
  int token_in[most], token_out[most];
  MPI_Comm comms[2];
  MPI_Request requests[most];
  const int settle = argc > 2 && strcmp(argv[2], "settle") == 0;
  state = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  comms[0] = MPI_COMM_WORLD;
  MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
  for (int k = 0; k < 2 && settle; ++k) {
    double one = 1, all = 0;
    MPI_Allreduce(&one, &all, 1, MPI_DOUBLE, MPI_SUM, comms[k]);
    CHECK(all == size);
  }
  for (int round = 0; round < rounds; ++round) {
    const int n = 1 + pick(most); /* the seed is one on all ranks, so are the choices */
    for (int i = 0; i < n; ++i) {
      in[i] = rank + i, out[i] = -1, token_in[i] = i, token_out[i] = -1;
      switch (pick(5)) {
        case 0: /* the program's own message round the ring */
          MPI_Irecv(&token_out[i], 1, MPI_INT, (rank + size - 1) % size, i, comms[1], &requests[i]);
          MPI_Send(&token_in[i], 1, MPI_INT, (rank + 1) % size, i, comms[1]);
          out[i] = size * (double)i + size * (size - 1) / 2.0;
          break;
        case 1:
          requests[i] = MPI_REQUEST_NULL;
          out[i] = size * (double)i + size * (size - 1) / 2.0;
          break;
        case 2:
          MPI_Ibcast(&token_in[i], 1, MPI_INT, 0, comms[pick(2)], &requests[i]);
          out[i] = size * (double)i + size * (size - 1) / 2.0;
          break;
        default:
          MPI_Iallreduce(&in[i], &out[i], 1, MPI_DOUBLE, MPI_SUM, comms[pick(2)], &requests[i]);
      }
    }
    complete_all(pick(9), n, requests);
    for (int i = 0; i < n; ++i) CHECK(out[i] == size * (double)i + size * (size - 1) / 2.0);
  }
  if (count_calls(NULL) >= 0 && settle) CHECK(count_path("allreduce", NATIVE) > rounds);
  MPI_Comm_free(&comms[1]);
  MPI_Finalize();
  return failures != 0;
}
