/* How many allreduce calls of this process tutti has seen; -1 when it is not loaded. For C and, by the
 * name with an underscore, for Fortran (integer(8) function hit_count). */
#include <dlfcn.h>
#include <stddef.h>

long long hit_count(void) {
  unsigned long long (*calls)(const char*) = NULL;
  *(void**)&calls = dlsym(RTLD_DEFAULT, "tutti_count_calls");
  return calls == NULL ? -1 : (long long)calls("allreduce");
}

long long hit_count_(void) {
  return hit_count();
}
