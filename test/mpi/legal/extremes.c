/* Values at the ends of their types. Unsigned minima and maxima (Open MPI 4.1 by itself takes
 * unsigned long for signed), a NaN whichever rank holds it, and a sum whose rounding shows the
 * order: whatever the MPI gives, all ranks must have the same bits. */
#include <math.h>
#include <stdint.h>

#include "legal.h"

static void same_everywhere(const void* mine, int bytes) {
  char* first = malloc(bytes);
  memcpy(first, mine, bytes);
  MPI_Bcast(first, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
  CHECK(memcmp(first, mine, bytes) == 0);
  free(first);
}

/* One rank holds the other end; a signed comparison takes all ones for -1. */
static void unsigned_extremes(MPI_Datatype type, int bytes, int count) {
  char* in = malloc((size_t)bytes * count);
  char* out = malloc((size_t)bytes * count);
  for (int max = 0; max < 2; ++max) {
    const int odd_one = rank == nranks - 1;
    memset(in, odd_one == max ? 0xff : 0, (size_t)bytes * count);
    memset(out, 0x55, (size_t)bytes * count);
    MPI_Allreduce(in, out, count, type, max ? MPI_MAX : MPI_MIN, MPI_COMM_WORLD);
    for (int i = 0; i < bytes * count; ++i) CHECK((unsigned char)out[i] == (max ? 0xff : 0));
  }
  free(in);
  free(out);
}

static void nans(int count) {
  double* in = malloc(count * sizeof *in);
  double* out = malloc(count * sizeof *out);
  for (int holder = 0; holder < nranks; ++holder)
    for (int max = 0; max < 2; ++max) {
      for (int i = 0; i < count; ++i) in[i] = rank - i;
      if (rank == holder) in[count / 2] = NAN;
      MPI_Allreduce(in, out, count, MPI_DOUBLE, max ? MPI_MAX : MPI_MIN, MPI_COMM_WORLD);
      same_everywhere(out, (int)(count * sizeof *out));
      for (int i = 0; i < count; ++i)
        if (i != count / 2) CHECK(out[i] == (max ? nranks - 1 - i : -i));
    }
  free(in);
  free(out);
}

static void order(int count) {
  static const double values[] = {1e16, 1, -1e16, 1};
  double* in = malloc(count * sizeof *in);
  double* out = malloc(count * sizeof *out);
  for (int in_place = 0; in_place < 2; ++in_place) {
    for (int i = 0; i < count; ++i) out[i] = in[i] = values[rank % 4] * (i + 1);
    MPI_Allreduce(in_place ? MPI_IN_PLACE : in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    same_everywhere(out, (int)(count * sizeof *out));
  }
  free(in);
  free(out);
}

int main(void) {
  start();
  for (int c = 0; c < counts_size; ++c) {
    unsigned_extremes(MPI_UNSIGNED_CHAR, sizeof(unsigned char), counts[c]);
    unsigned_extremes(MPI_UNSIGNED_SHORT, sizeof(unsigned short), counts[c]);
    unsigned_extremes(MPI_UNSIGNED, sizeof(unsigned), counts[c]);
    unsigned_extremes(MPI_UNSIGNED_LONG, sizeof(unsigned long), counts[c]);
    unsigned_extremes(MPI_UNSIGNED_LONG_LONG, sizeof(unsigned long long), counts[c]);
    unsigned_extremes(MPI_UINT64_T, sizeof(uint64_t), counts[c]);
    nans(counts[c]);
    order(counts[c]);
  }
  return finish();
}
