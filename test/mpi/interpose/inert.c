/* tutti from MPI_Init to MPI_Finalize and no longer: counts nothing in a program without collectives,
 * leaves no request or attribute behind, works in the callbacks that MPI calls at MPI_Finalize. */
#include <mpi.h>
#include <string.h>

#include "check.h"

static int deleted_self, deleted_world;

static int in_finalize(MPI_Comm comm, int keyval, void* value, void* extra) {
  int one = 1, sum = 0, size = 0;
  (void)comm, (void)keyval, (void)extra;
  /* MPI is at work here (MPI-4.0 section 11.2.4); tutti ends after this one. */
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CHECK_EQUAL(sum, size);
  ++*(int*)value;
  return MPI_SUCCESS;
}

int main(int argc, char** argv) {
  const int expect_tutti = argc > 1 && strcmp(argv[1], "tutti") == 0;
  int flag = 0, version = 0, subversion = 0, self_key, world_key;
  MPI_Initialized(&flag);
  CHECK_EQUAL(flag, 0);
  MPI_Get_version(&version, &subversion);
  CHECK(version >= 3);
  CHECK_EQUAL(count_calls(NULL), expect_tutti ? 0 : -1);

  if (argc > 2) /* where the base has locks, its callbacks run under them */
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &flag);
  else
    MPI_Init(&argc, &argv);
  CHECK_EQUAL(count_calls(NULL), expect_tutti ? 0 : -1);
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, in_finalize, &self_key, NULL);
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, in_finalize, &world_key, NULL);
  MPI_Comm_set_attr(MPI_COMM_SELF, self_key, &deleted_self);
  if (argc > 2) MPI_Comm_set_attr(MPI_COMM_WORLD, world_key, &deleted_world);
  MPI_Finalize();

  CHECK_EQUAL(deleted_self, 1);
  MPI_Finalized(&flag);
  CHECK_EQUAL(flag, 1);
  MPI_Initialized(&flag);
  CHECK_EQUAL(flag, 1);
  if (expect_tutti) CHECK_EQUAL(count_calls("allreduce"), deleted_self + deleted_world);
  return failures != 0;
}
