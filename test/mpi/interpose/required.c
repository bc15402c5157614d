/* Under TUTTI_REQUIRE=native a collective of several ranks that would go to the MPI below ends with an error
 * on every rank, in all its forms; what is tutti's own, what one rank calls by itself and what is between
 * groups goes on. Host memory: of all collectives only allreduce is tutti's own there. */
#include <mpi.h>
#include <string.h>

#include "check.h"

static int rank, nranks;

static void add(void* in, void* inout, int* n, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *n; ++i) ((int*)inout)[i] += ((int*)in)[i];
}

/* The same error on all ranks, with a text that names the setting. */
static void refused(int line, int code) {
  int class = -1, length, all[2], own[2];
  char text[MPI_MAX_ERROR_STRING];
  MPI_Error_class(code, &class);
  MPI_Error_string(code, text, &length);
  own[0] = code != MPI_SUCCESS && class == MPI_ERR_OTHER;
  own[1] = 1;
#ifndef MPICH_VERSION
  own[1] = strstr(text, "TUTTI_REQUIRE") != NULL;
#endif
  MPI_Allreduce(own, all, 2, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (all[0] && all[1]) return;
  fprintf(stderr, "line %d: code %d, class %d, \"%s\", or not on all ranks\n", line, code, class,
          text);
  ++failures;
}
#define REFUSED(call) refused(__LINE__, call)

static MPI_Comm fresh(void) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return comm;
}

int main(int argc, char** argv) {
  int in[2] = {1, 2}, out[2] = {0, 0}, all[64], dims[1] = {0}, periods[1] = {1};
  MPI_Op op;
  MPI_Comm comm, cart, inter, half;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &nranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Op_create(add, 1, &op);

  comm = fresh();
  CHECK_EQUAL(MPI_Allreduce(in, out, 2, MPI_INT, MPI_SUM, comm), MPI_SUCCESS);
  CHECK_EQUAL(out[1], 2 * nranks);
  REFUSED(MPI_Bcast(in, 2, MPI_INT, 0, comm));
  REFUSED(MPI_Barrier(comm));
  REFUSED(MPI_Allreduce(in, out, 2, MPI_INT, op, comm));
  REFUSED(MPI_Allgather(in, 1, MPI_INT, all, 1, MPI_INT, comm));
  REFUSED(MPI_Ibcast(in, 2, MPI_INT, 0, comm, &request));
  REFUSED(MPI_Iallreduce(in, out, 2, MPI_INT, op, comm, &request));
#if MPI_VERSION >= 4
  REFUSED(MPI_Allreduce_init(in, out, 2, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request));
#endif
  MPI_Comm_free(&comm);

  /* First calls, behind which the set-up goes on. */
  comm = fresh();
#ifndef MPICH_VERSION /* where blocking calls alone set a communicator up */
  CHECK_EQUAL(MPI_Iallreduce(in, out, 2, MPI_INT, MPI_SUM, comm, &request), MPI_SUCCESS);
  CHECK_EQUAL(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
#endif
  MPI_Comm_free(&comm);
  comm = fresh();
  {
    /* Refused by the call or by the wait for it, as the set-up has got on. */
    int code = MPI_Ibcast(in, 2, MPI_INT, 0, comm, &request);
    if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    REFUSED(code);
  }
  MPI_Comm_free(&comm);

  comm = fresh();
  MPI_Cart_create(comm, 1, (dims[0] = nranks, dims), periods, 0, &cart);
  MPI_Comm_set_errhandler(cart, MPI_ERRORS_RETURN);
  REFUSED(MPI_Neighbor_allgather(in, 1, MPI_INT, all, 1, MPI_INT, cart));
  MPI_Comm_free(&cart);

  /* One rank, and between groups. */
  CHECK_EQUAL(MPI_Bcast(in, 2, MPI_INT, 0, MPI_COMM_SELF), MPI_SUCCESS);
  CHECK_EQUAL(MPI_Barrier(MPI_COMM_SELF), MPI_SUCCESS);
  MPI_Comm_split(comm, rank == 0, rank, &half);
  MPI_Intercomm_create(half, 0, comm, rank == 0 ? 1 : 0, 3, &inter);
  MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
  CHECK_EQUAL(MPI_Barrier(inter), MPI_SUCCESS);
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
  MPI_Comm_free(&comm);
  MPI_Op_free(&op);
  MPI_Finalize();
  return failures != 0;
}
