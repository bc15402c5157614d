/* An ordinary MPI program: the mean of a field that is spread over the ranks, again and again. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  const int n = argc > 1 ? atoi(argv[1]) : 8192, rounds = 2000;
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  double* mine = malloc(n * sizeof *mine);
  double* sum = malloc(n * sizeof *sum);
  double fastest = 1e9;
  for (int i = 0; i < n; ++i) mine[i] = sin(i) * (rank + 1);
  for (int round = 0; round < rounds; ++round) {
    const double start = MPI_Wtime();
    MPI_Allreduce(mine, sum, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    const double time = MPI_Wtime() - start;
    if (time < fastest) fastest = time;
  }
  double off = 0;
  for (int i = 0; i < n; ++i) off += fabs(sum[i] - sin(i) * size * (size + 1) / 2);
  if (rank == 0) {
    printf("C: allreduce of %d doubles on %d ranks, fastest %.2f us, %s\n", n, size, fastest * 1e6,
           off < 1e-9 * n * size * size ? "right" : "WRONG");
  }
  MPI_Finalize();
  return off < 1e-9 * n * size * size ? 0 : 1;
}
