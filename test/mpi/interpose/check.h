/* What the programs of this folder share: a check that counts, and tutti's counters looked up at run
 * time, so that the same program runs without tutti. */
#ifndef TUTTI_TEST_INTERPOSE_CHECK_H
#define TUTTI_TEST_INTERPOSE_CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static int failures = 0;

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);   \
      ++failures;                                                               \
    }                                                                           \
  } while (0)

#define CHECK_EQUAL(a, b)                                                                    \
  do {                                                                                       \
    long long check_a = (long long)(a), check_b = (long long)(b);                            \
    if (check_a != check_b) {                                                                \
      fprintf(stderr, "%s:%d: failed: %s is %lld, %s is %lld\n", __FILE__, __LINE__, #a, check_a, \
              #b, check_b);                                                                  \
      ++failures;                                                                            \
    }                                                                                        \
  } while (0)

/* Paths as in tutti.h. */
enum { NATIVE = 0, BOUNCE = 1, BELOW = 2 };

/* -1 when tutti is not there. */
static inline long long count_calls(const char* collective) {
  unsigned long long (*get)(const char*) =
      (unsigned long long (*)(const char*))dlsym(RTLD_DEFAULT, "tutti_count_calls");
  return get == NULL ? -1 : (long long)get(collective);
}
static inline long long count_path(const char* collective, int path) {
  unsigned long long (*get)(const char*, int) =
      (unsigned long long (*)(const char*, int))dlsym(RTLD_DEFAULT, "tutti_count_path");
  return get == NULL ? -1 : (long long)get(collective, path);
}

#endif
