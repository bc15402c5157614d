/* tutti.h: what a program may ask tutti. All optional: tutti works without a call to it.
 *
 * A program that runs with and without tutti looks the functions up by dlsym(RTLD_DEFAULT, ...), or
 * declares them weak. They may be called at any time, from any thread. */
#ifndef TUTTI_H
#define TUTTI_H

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_API_VERSION 1

/* Version of this interface in the library that is loaded; it grows only. */
int tutti_api_version(void);

/* Version of the library: "0.1.0". */
const char* tutti_version(void);

/* What became of a collective call. */
enum tutti_path {
  TUTTI_PATH_NATIVE = 0, /* tutti's own algorithms */
  TUTTI_PATH_BOUNCE = 1, /* the MPI below, on host copies of device buffers */
  TUTTI_PATH_BELOW = 2,  /* the MPI below, as the program called it */
};

/* Calls of this process so far: of one collective in all its forms, as "allreduce", or of all of them
 * (NULL). Each call of the program counts once, when it begins. An unknown name counts 0. */
unsigned long long tutti_count_calls(const char* collective);

/* How many of them took a path. A nonblocking call counts when its path is known. */
unsigned long long tutti_count_path(const char* collective, enum tutti_path path);

#ifdef __cplusplus
}
#endif

#endif
