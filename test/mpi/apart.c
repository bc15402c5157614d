/* Preloaded beside tutti, makes the ranks of one host take each other for ranks of several nodes: APART=N puts
 * N neighbouring ranks on each. For machines that allow no namespaces, as those with GPUs may be. Works by
 * what tells nodes apart: the file system of shared memory. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char* rank_text(void) {
  const char* text = getenv("OMPI_COMM_WORLD_RANK");
  return text != NULL ? text : getenv("PMI_RANK");
}

int stat(const char* path, struct stat* out) {
  static int (*next)(const char*, struct stat*);
  const char* each = getenv("APART");
  const char* rank = rank_text();
  int result;
  if (next == NULL) next = (int (*)(const char*, struct stat*))dlsym(RTLD_NEXT, "stat");
  result = next(path, out);
  if (result == 0 && each != NULL && rank != NULL && strcmp(path, "/dev/shm") == 0)
    out->st_ino ^= (ino_t)(atoi(rank) / (atoi(each) > 0 ? atoi(each) : 1) + 1) << 32;
  return result;
}
