/* A PMPI tool as people write them: defines MPI_X, counts, calls PMPI_X. */
#include <mpi.h>

int tool_bcasts, tool_allreduces, tool_iallreduces, tool_waits, tool_inits, tool_finalizes;

int MPI_Init(int* argc, char*** argv) {
  ++tool_inits;
  return PMPI_Init(argc, argv);
}
int MPI_Finalize(void) {
  ++tool_finalizes;
  return PMPI_Finalize();
}
int MPI_Bcast(void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm) {
  ++tool_bcasts;
  return PMPI_Bcast(buffer, count, datatype, root, comm);
}
int MPI_Allreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                  MPI_Comm comm) {
  ++tool_allreduces;
  return PMPI_Allreduce(sendbuf, recvbuf, count, datatype, op, comm);
}
int MPI_Iallreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                   MPI_Comm comm, MPI_Request* request) {
  ++tool_iallreduces;
  return PMPI_Iallreduce(sendbuf, recvbuf, count, datatype, op, comm, request);
}
int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  ++tool_waits;
  return PMPI_Wait(request, status);
}
