/* Collectives to the very end: in callbacks that MPI_Finalize runs, with communicators left over.
 * And a child process that exits in the ordinary way in between. */
#include <sys/wait.h>

#include "legal.h"

static int called;

static void check_allreduce(MPI_Comm comm) {
  int in[5], out[5] = {-1, -1, -1, -1, -1};
  fill(in, 5, rank);
  MPI_Allreduce(in, out, 5, MPI_INT, MPI_SUM, comm);
  CHECK(is_sum(out, 5, nranks));
}

static int at_finalize(MPI_Comm comm, int key, void* value, void* extra) {
  (void)comm;
  (void)key;
  (void)extra;
  check_allreduce(MPI_COMM_WORLD);
  check_allreduce(*(MPI_Comm*)value);
  ++called;
  return MPI_SUCCESS;
}

int main(void) {
  static MPI_Comm kept[3];
  int key;
  start();
  for (int i = 0; i < 3; ++i) MPI_Comm_dup(MPI_COMM_WORLD, &kept[i]);
  check_allreduce(kept[0]);
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &key, NULL);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, &kept[1]);
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) exit(0); /* runs destructors and atexit functions of every library */
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  check_allreduce(kept[2]);
  MPI_Finalize();
  return called == 1 ? 0 : 1;
}
