/* Communicators of sessions: before MPI_Init, beside it, across MPI_Finalize and after it. */
#include "legal.h"

#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)

static MPI_Session session;
static MPI_Comm open_session(const char* tag) {
  MPI_Group group;
  MPI_Comm comm;
  CHECK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session) == MPI_SUCCESS);
  MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
  MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
  MPI_Group_free(&group);
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &nranks);
  return comm;
}

static void use(MPI_Comm comm) {
  static int in[1000], out[1000];
  MPI_Request request;
  MPI_Comm dup;
  fill(in, 1000, rank);
  MPI_Allreduce(in, out, 1000, MPI_INT, MPI_SUM, comm);
  CHECK(is_sum(out, 1000, nranks));
  memset(out, 0, sizeof out);
  MPI_Iallreduce(in, out, 1000, MPI_INT, MPI_SUM, comm, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK(is_sum(out, 1000, nranks));
  MPI_Comm_dup(comm, &dup);
  memset(out, 0, sizeof out);
  MPI_Iallreduce(in, out, 1000, MPI_INT, MPI_SUM, dup, &request);
  MPI_Barrier(comm);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK(is_sum(out, 1000, nranks));
  MPI_Comm_free(&dup);
}

int main(void) {
  MPI_Session first;
  MPI_Comm before, beside;
  alarm(60);
  before = open_session("before");
  first = session;
  use(before);
  MPI_Init(NULL, NULL);
  use(MPI_COMM_WORLD);
  use(before);
  beside = open_session("beside");
  use(beside);
  MPI_Comm_free(&beside);
  MPI_Session_finalize(&session);
  use(before);
  MPI_Finalize();
  use(before);
  MPI_Comm_free(&before);
  MPI_Session_finalize(&first);
  return 0;
}

#else

int main(void) {
  return 77;
}

#endif
