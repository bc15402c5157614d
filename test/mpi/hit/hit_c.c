/* Each allreduce of a C program reaches tutti exactly once and gives the same result as without it. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

enum { n = 100 };
long long hit_count(void);

static int rank, nranks, faults;

static void expect(const char* what, int calls, long long before, const double* out) {
  const long long now = hit_count();
  if (before >= 0 && now - before != calls) {
    printf("rank %d: %s: %lld hits of %d calls\n", rank, what, now - before, calls);
    ++faults;
  }
  for (int i = 0; i < n; ++i)
    if (out[i] != nranks * (nranks + 1) / 2.0 + i * nranks) {
      printf("rank %d: %s: element %d is %g\n", rank, what, i, out[i]);
      ++faults;
      return;
    }
}

static void fill(double* values) {
  for (int i = 0; i < n; ++i) values[i] = rank + 1 + i;
}

int main(int argc, char** argv) {
  double in[n], out[n];
  MPI_Comm dup;
  MPI_Request request;
  alarm(60);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &nranks);
  MPI_Comm_dup(MPI_COMM_WORLD, &dup);
  for (int round = 0; round < 3; ++round) {
    long long before = hit_count();
    fill(in);
    MPI_Allreduce(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    expect("MPI_Allreduce", 1, before, out);
    before = hit_count();
    fill(out);
    MPI_Allreduce(MPI_IN_PLACE, out, n, MPI_DOUBLE, MPI_SUM, dup);
    expect("MPI_Allreduce in place", 1, before, out);
    before = hit_count();
    MPI_Iallreduce(in, out, n, MPI_DOUBLE, MPI_SUM, dup, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect("MPI_Iallreduce", 1, before, out);
    before = hit_count();
    MPI_Allreduce(in, out, 0, MPI_DOUBLE, MPI_SUM, dup);
    expect("MPI_Allreduce of nothing", 1, before, out);
    /* What is not an allreduce, and what an MPI does inside, counts nothing. */
    before = hit_count();
    MPI_Barrier(dup);
    MPI_Comm other;
    MPI_Comm_split(dup, rank % 2, rank, &other);
    MPI_Comm_free(&other);
    expect("other calls", 0, before, out);
  }
  MPI_Comm_free(&dup);
  MPI_Finalize();
  return faults != 0;
}
