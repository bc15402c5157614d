/* The last rank is lost, in a call or in the set-up of a communicator: all others end with an error in time.
 *
 *   lost stop|kill|cut call|setup LIMIT_S
 *
 * stop: it stands still; kill: it dies; cut: its host leaves the network. Run with TUTTI_TIMEOUT below LIMIT_S.
 * Every survivor prints "ended after"; the job itself cannot end well, so test/hosts/run counts these lines. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void leave(const char* how) {
  if (strcmp(how, "stop") == 0) raise(SIGSTOP);
  if (strcmp(how, "kill") == 0) raise(SIGKILL);
  if (system("ip link set eth0 down") != 0) puts("cannot leave the network");
}

int main(int argc, char** argv) {
  enum { count = 20000 };
  static int in[count], out[count];
  int rank, size, again;
  double limit_s;
  MPI_Comm comm;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 4) MPI_Abort(MPI_COMM_WORLD, 2);
  limit_s = atof(argv[3]);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  if (strcmp(argv[2], "call") == 0 &&
      MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS)
    MPI_Abort(MPI_COMM_WORLD, 3);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == size - 1) {
    usleep(200000); /* the others are on their way */
    leave(argv[1]);
  }
  for (again = 0; again < 2; ++again) {
    const double begin = now();
    const int error = MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm);
    const double seconds = now() - begin;
    if (error == MPI_SUCCESS)
      printf("rank %d: success without the lost rank's part\n", rank);
    else if (seconds > limit_s)
      printf("rank %d: too late, after %.2f s\n", rank, seconds);
    else if (again == 1)
      printf("rank %d ended after %.2f s\n", rank, seconds);
  }
  fflush(stdout);
  sleep(1); /* the output is passed on */
  _exit(0);
}
