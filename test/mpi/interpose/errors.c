/* Errors of tutti's calls: the communicator's error handler, once, and the code from the call that
 * ends them; bad arguments have the base's errors. Two ranks or more that disagree about a count are
 * what tutti finds on the board. argv[1]: the file name of the MPI library. */
#include <mpi.h>

#include "check.h"

static int handled, handled_code;
static MPI_Comm handled_comm;

static void handler(MPI_Comm* comm, int* code, ...) {
  ++handled;
  handled_comm = *comm;
  handled_code = *code;
}

static int class_of(int code) {
  int class = -1;
  MPI_Error_class(code, &class);
  return class;
}

static MPI_Comm fresh(MPI_Errhandler errhandler) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, errhandler);
  handled = 0;
  return comm;
}

typedef int (*Allreduce)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm);
static Allreduce past; /* the base's own */

#ifndef MPICH_VERSION
static void refused(const char* what, const void* in, void* out, int count, MPI_Datatype type,
                    MPI_Op op, MPI_Comm comm) {
  const int expected = class_of(past(in, out, count, type, op, comm));
  const int found = class_of(MPI_Allreduce(in, out, count, type, op, comm));
  if (found == expected && found != MPI_SUCCESS) return;
  fprintf(stderr, "bad %s: class %d through tutti, %d past it\n", what, found, expected);
  ++failures;
}
#endif

int main(int argc, char** argv) {
  int rank, in[4] = {1, 2, 3, 4}, out[4], code, flag = 0, before = 7, after = 0;
  char text[MPI_MAX_ERROR_STRING];
  int length;
  MPI_Errhandler errhandler;
  MPI_Comm comm;
  MPI_Request requests[3];
  MPI_Status statuses[3];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_create_errhandler(handler, &errhandler);
  past =
      argc > 1 ? (Allreduce)dlsym(dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD), "PMPI_Allreduce") : NULL;
  if (past == NULL) MPI_Abort(MPI_COMM_WORLD, 2);

  /* A blocking call. */
  comm = fresh(errhandler);
  code = MPI_Allreduce(in, out, rank == 0 ? 1 : 3, MPI_INT, MPI_SUM, comm);
  CHECK(code != MPI_SUCCESS);
  CHECK_EQUAL(handled, 1);
  CHECK_EQUAL(handled_code, code);
  CHECK(handled_comm == comm);
  CHECK_EQUAL(class_of(code), MPI_ERR_OTHER);
  CHECK_EQUAL(MPI_Error_string(code, text, &length), MPI_SUCCESS);
  MPI_Comm_free(&comm);

  /* A nonblocking one among the program's own requests. */
  comm = fresh(errhandler);
  code = MPI_Allreduce(in, out, 1, MPI_INT, MPI_SUM, comm); /* sets up, whatever drives progress */
  CHECK_EQUAL(code, MPI_SUCCESS);
  MPI_Isend(&before, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &requests[0]);
  MPI_Iallreduce(in, out, rank == 0 ? 1 : 3, MPI_INT, MPI_SUM, comm, &requests[1]);
  MPI_Irecv(&after, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &requests[2]);
  code = MPI_Waitall(3, requests, statuses);
  CHECK_EQUAL(code, MPI_ERR_IN_STATUS);
  CHECK_EQUAL(handled, 1);
  CHECK(handled_comm == comm);
  CHECK_EQUAL(statuses[0].MPI_ERROR, MPI_SUCCESS);
  CHECK_EQUAL(class_of(statuses[1].MPI_ERROR), MPI_ERR_OTHER);
  CHECK_EQUAL(statuses[2].MPI_ERROR, MPI_SUCCESS);
  CHECK_EQUAL(after, before);
  for (int i = 0; i < 3; ++i) CHECK(requests[i] == MPI_REQUEST_NULL);
  MPI_Comm_free(&comm);

  /* By MPI_Test, with the code alone. */
  comm = fresh(MPI_ERRORS_RETURN);
  CHECK_EQUAL(MPI_Allreduce(in, out, 1, MPI_INT, MPI_SUM, comm), MPI_SUCCESS);
  MPI_Iallreduce(in, out, rank == 0 ? 1 : 3, MPI_INT, MPI_SUM, comm, &requests[0]);
  do code = MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
  while (code == MPI_SUCCESS && !flag);
  CHECK_EQUAL(class_of(code), MPI_ERR_OTHER);
  CHECK(requests[0] == MPI_REQUEST_NULL);
  MPI_Comm_free(&comm);

  /* What the base refuses, it refuses; the same on all ranks. Debian's MPICH checks no arguments. */
  comm = fresh(MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
#ifndef MPICH_VERSION
  refused("count", in, out, -1, MPI_INT, MPI_SUM, comm);
  refused("type", in, out, 1, MPI_DATATYPE_NULL, MPI_SUM, comm);
  refused("operation", in, out, 1, MPI_INT, MPI_OP_NULL, comm);
  refused("operation on the type", in, out, 1, MPI_FLOAT, MPI_BAND, comm);
  refused("in place at the receiver", in, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, comm);
  refused("communicator", in, out, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL);
#endif

  /* A pending collective can be neither freed nor cancelled; one that has ended may let it pass. */
  CHECK_EQUAL(MPI_Allreduce(in, out, 1, MPI_INT, MPI_SUM, comm), MPI_SUCCESS);
  out[0] = -1;
  MPI_Iallreduce(in, out, 1, MPI_INT, MPI_SUM, comm, &requests[0]);
  MPI_Cancel(&requests[0]);
  code = MPI_Request_free(&requests[0]);
  CHECK((code == MPI_SUCCESS) == (requests[0] == MPI_REQUEST_NULL));
  CHECK_EQUAL(MPI_Wait(&requests[0], MPI_STATUS_IGNORE), MPI_SUCCESS);
  MPI_Comm_size(comm, &length);
  CHECK_EQUAL(out[0], in[0] * length);
  MPI_Comm_free(&comm);

  MPI_Errhandler_free(&errhandler);
  MPI_Finalize();
  return failures != 0;
}
