/* tutti.h: what a program may ask tutti. All optional: tutti works without a call to it.
 *
 * A program that runs with and without tutti looks the functions up by dlsym(RTLD_DEFAULT, ...), or
 * declares them weak. They may be called at any time, from any thread. */
#ifndef TUTTI_H
#define TUTTI_H

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_API_VERSION 2

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

/* What tutti does with calls on a communicator: "one node, host memory: shared memory", or where it leaves
 * them to the MPI below, and why. `comm` points to the program's MPI_Comm. Known once the communicator's first
 * collective has ended. Writes at most `bytes` with the final zero, cut off where there is no room, and
 * returns the length of the whole text; -1, and nothing written, for what is no communicator. Local; by one
 * thread at a time on a communicator, between MPI_Init and MPI_Finalize. Since version 2. */
int tutti_comm_verdict(const void* comm, char* text, int bytes);

#ifdef __cplusplus
}
#endif

#endif
