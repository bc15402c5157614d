/* tutti_comm_verdict: known after the first call, cut off where there is no room, refused for what is no
 * communicator. */
#include <mpi.h>
#include <string.h>

#include "check.h"

typedef int (*Verdict)(const void*, char*, int);

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Verdict verdict = (Verdict)dlsym(RTLD_DEFAULT, "tutti_comm_verdict");
  CHECK(verdict != NULL);
  char before[200] = "", after[200] = "", cut[8] = "xxxxxxx";
  MPI_Comm world = MPI_COMM_WORLD, self = MPI_COMM_SELF, none = MPI_COMM_NULL;
  CHECK(verdict(&world, before, sizeof before) == (int)strlen(before));
  CHECK(strstr(before, "no collective") != NULL);
  int one = 1, sum = 0;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, world);
  const int length = verdict(&world, after, sizeof after);
  CHECK(length == (int)strlen(after) && length > 10);
  CHECK(strcmp(before, after) != 0);
  CHECK(verdict(&world, cut, 6) == length);
  CHECK(memcmp(cut, after, 5) == 0 && cut[5] == '\0' && cut[6] == 'x');
  CHECK(verdict(&world, NULL, 0) == length);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, self);
  CHECK(verdict(&self, after, sizeof after) > 0 && strstr(after, "MPI below") != NULL);
  CHECK(verdict(&none, after, sizeof after) == -1);
  CHECK(verdict(NULL, after, sizeof after) == -1);
  MPI_Finalize();
  CHECK(verdict(&self, after, sizeof after) == -1);
  return failures != 0;
}
