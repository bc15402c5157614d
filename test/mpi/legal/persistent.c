/* Persistent allreduce where the MPI has it (MPI 4 or as an extension): each start takes the data
 * of its time, Start and Startall mix with other requests, and an inactive request may be freed. */
#include "legal.h"

#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif
#if MPI_VERSION >= 4
#define ALLREDUCE_INIT MPI_Allreduce_init
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define ALLREDUCE_INIT MPIX_Allreduce_init
#endif

int main(void) {
  start();
#ifndef ALLREDUCE_INIT
  MPI_Finalize();
  return 77;
#else
  enum { count = 3000 };
  static int in[count], out[2][count];
  int token = -1;
  const int mine = rank;
  MPI_Request requests[3];
  ALLREDUCE_INIT(in, out[0], count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
  ALLREDUCE_INIT(in, out[1], count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
  MPI_Recv_init(&token, 1, MPI_INT, (rank + 1) % nranks, 6, MPI_COMM_WORLD, &requests[2]);
  for (int round = 0; round < 5; ++round) {
    fill(in, count, rank + round);
    memset(out, 0xff, sizeof out);
    MPI_Request send;
    MPI_Isend(&mine, 1, MPI_INT, (rank + nranks - 1) % nranks, 6, MPI_COMM_WORLD, &send);
    if (round % 2 == 0) {
      MPI_Startall(3, requests);
    } else {
      for (int i = 0; i < 3; ++i) MPI_Start(&requests[i]);
    }
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    CHECK(token == (rank + 1) % nranks);
    for (int i = 0; i < count; ++i) {
      const int sum = nranks * (nranks - 1) / 2 + nranks * (i + round);
      CHECK(out[0][i] == sum && out[1][i] == sum && requests[i % 3] != MPI_REQUEST_NULL);
    }
  }
  for (int i = 0; i < 3; ++i) MPI_Request_free(&requests[i]);
  return finish();
#endif
}
