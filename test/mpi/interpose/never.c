/* Law 4: loading tutti into a program that never calls MPI does nothing. The program looks at itself:
 * threads, signal dispositions, and it prints how many files are open, for comparison with a run without
 * tutti. */
#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static int entries(const char* folder) {
  DIR* dir = opendir(folder);
  int n = 0;
  if (dir == NULL) return -1;
  for (struct dirent* entry = readdir(dir); entry != NULL; entry = readdir(dir)) ++n;
  closedir(dir);
  return n;
}

static int of_tutti_in_shm(void) {
  DIR* dir = opendir("/dev/shm");
  char own[32];
  int n = 0;
  if (dir == NULL) return 0;
  snprintf(own, sizeof own, "%d", (int)getpid());
  for (struct dirent* entry = readdir(dir); entry != NULL; entry = readdir(dir))
    n += strstr(entry->d_name, "tutti") != NULL && strstr(entry->d_name, own) != NULL;
  closedir(dir);
  return n;
}

int main(int argc, char** argv) {
  const int expect_tutti = argc > 1 && strcmp(argv[1], "tutti") == 0;
  CHECK_EQUAL(count_calls(NULL), expect_tutti ? 0 : -1);
  CHECK_EQUAL(entries("/proc/self/task"), 2 + 1); /* ., .., this thread */
  printf("%d open files\n", entries("/proc/self/fd"));
  CHECK_EQUAL(of_tutti_in_shm(), 0);
  /* The MPI library's own libraries may set some when they are loaded, with tutti or without. */
  for (int number = 1; number < 32; ++number) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) != 0) continue;
    if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) printf("signal %d\n", number);
  }
  return failures != 0;
}
