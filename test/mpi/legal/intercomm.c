/* Allreduce over an inter-communicator: each group gets the sum of the other. */
#include "legal.h"

int main(void) {
  MPI_Comm local, inter;
  MPI_Request request;
  start();
  need_ranks(2);
  const int side = rank == 0 ? 0 : 1;
  MPI_Comm_split(MPI_COMM_WORLD, side, rank, &local);
  MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, side == 0 ? 1 : 0, 5, &inter);
  for (int round = 0; round < 3; ++round) {
    int in = 1 << rank, out = -1, again = -1;
    MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, inter);
    MPI_Iallreduce(&in, &again, 1, MPI_INT, MPI_SUM, inter, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(out == (side == 0 ? (1 << nranks) - 2 : 1));
    CHECK(again == out);
  }
  MPI_Comm_free(&inter);
  MPI_Comm_free(&local);
  return finish();
}
