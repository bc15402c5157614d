/* Communicators made, used and freed over and over; memory, descriptors and names in /dev/shm must
 * not grow. A few that are never freed remain for MPI_Finalize. */
#include <dirent.h>

#include "legal.h"

static long entries(const char* path) {
  long n = 0;
  DIR* dir = opendir(path);
  if (dir == NULL) return 0;
  while (readdir(dir) != NULL) ++n;
  closedir(dir);
  return n;
}

/* A line of /proc/self/status, as RssAnon, in KiB. */
static long status_kib(const char* key) {
  char line[256];
  long kib = 0;
  FILE* file = fopen("/proc/self/status", "r");
  if (file == NULL) return 0;
  while (fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, key, strlen(key)) == 0) kib = strtol(line + strlen(key) + 1, NULL, 10);
  fclose(file);
  return kib;
}

static void use(MPI_Comm comm) {
  MPI_Request request;
  int in[9], out[9], me, size;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &size);
  fill(in, 9, me);
  MPI_Allreduce(in, out, 9, MPI_INT, MPI_SUM, comm);
  CHECK(is_sum(out, 9, size));
  memset(out, 0xff, sizeof out);
  MPI_Iallreduce(in, out, 9, MPI_INT, MPI_SUM, comm, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK(is_sum(out, 9, size));
}

static void round_of(void) {
  MPI_Comm dup, split, nested;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup);
  use(dup);
  MPI_Comm_split(dup, rank % 2, -rank, &split);
  MPI_Comm_free(&dup);
  use(split);
  MPI_Comm_dup(split, &nested);
  use(nested);
  MPI_Comm_free(&split);
  use(nested);
  MPI_Comm_free(&nested);
}

int main(void) {
  MPI_Comm kept[20];
  start();
  for (int i = 0; i < 50; ++i) round_of();
  const long fds = entries("/proc/self/fd"), shm = entries("/dev/shm"), kib = status_kib("RssAnon");
  for (int i = 0; i < 200; ++i) {
    alarm(60);
    round_of();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(entries("/proc/self/fd") <= fds + 2);
  /* Other jobs may come and go on this machine. */
  CHECK(entries("/dev/shm") <= shm + 100);
  CHECK(status_kib("RssAnon") <= kib + 4 * 1024);
  /* Shared memory may be taken from a pool, but not more than a rank may hold. */
  CHECK(status_kib("RssShmem") <= 96 * 1024);
  for (int i = 0; i < 20; ++i) {
    MPI_Comm_dup(MPI_COMM_WORLD, &kept[i]);
    use(kept[i]);
  }
  return finish();
}
