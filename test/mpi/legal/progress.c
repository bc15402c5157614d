/* A rank that has started a nonblocking allreduce blocks in another MPI call until a peer, which
 * first waits for that allreduce, lets it go on. Whatever the call, the allreduce must progress in
 * it. */
#include "legal.h"

static int *in, *out;
static int token;
static MPI_Comm other;
static MPI_Win window;
static int* exposed;

/* What rank 0 does while its allreduce is pending, and what rank 1 does after its own has
 * completed. */
static void recv0(void) {
  MPI_Recv(&token, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
static void send1(void) {
  MPI_Send(&token, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
}

static void ssend0(void) {
  MPI_Ssend(&token, 1, MPI_INT, 1, 2, MPI_COMM_WORLD);
}
static void take1(void) {
  MPI_Recv(&token, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void probe0(void) {
  MPI_Probe(1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  recv0();
}
static void iprobe0(void) {
  int flag = 0;
  while (!flag) MPI_Iprobe(1, 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
  recv0();
}
static void mprobe0(void) {
  MPI_Message message;
  MPI_Mprobe(1, 1, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
  MPI_Mrecv(&token, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
}
static void sendrecv0(void) {
  int got = 0;
  MPI_Sendrecv(&token, 1, MPI_INT, 1, 2, &got, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
static void sendrecv1(void) {
  send1();
  take1();
}
/* Waits for a request that is not the allreduce's. */
static void wait0(void) {
  MPI_Request request;
  MPI_Irecv(&token, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}
static void test0(void) {
  MPI_Request request;
  int flag = 0;
  MPI_Irecv(&token, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, &request);
  while (!flag) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
}
/* Blocking collectives on another communicator. */
static void barrier(void) {
  MPI_Barrier(other);
}
static void bcast(void) {
  MPI_Bcast(&token, 1, MPI_INT, 1, other);
}
static void allreduce(void) {
  int one = 1, sum = 0;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, other);
  CHECK(sum == nranks);
}
static void fence(void) {
  if (rank == 0) MPI_Put(&token, 1, MPI_INT, 1, 0, 1, MPI_INT, window);
  MPI_Win_fence(0, window);
}

struct Way {
  const char* name;
  void (*rank0)(void);
  void (*rank1)(void);
  void (*others)(void); /* where all must take part */
};
static const struct Way ways[] = {
    {"recv", recv0, send1, NULL},
    {"ssend", ssend0, take1, NULL},
    {"probe", probe0, send1, NULL},
    {"iprobe", iprobe0, send1, NULL},
    {"mprobe", mprobe0, send1, NULL},
    {"sendrecv", sendrecv0, sendrecv1, NULL},
    {"wait", wait0, send1, NULL},
    {"test", test0, send1, NULL},
    {"barrier", barrier, barrier, barrier},
    {"bcast", bcast, bcast, bcast},
    {"allreduce", allreduce, allreduce, allreduce},
    {"fence", fence, fence, fence},
};

static void go(const struct Way* way, int count) {
  MPI_Request request;
  fill(in, count, rank);
  memset(out, 0xff, count * sizeof *out);
  MPI_Iallreduce(in, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
  if (rank == 0) way->rank0();
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  if (rank == 1) way->rank1();
  if (rank > 1 && way->others != NULL) way->others();
  CHECK(is_sum(out, count, nranks));
}

int main(void) {
  start();
  need_ranks(2);
  in = malloc(most * sizeof *in);
  out = malloc(most * sizeof *out);
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  MPI_Win_allocate(sizeof *exposed, sizeof *exposed, MPI_INFO_NULL, MPI_COMM_WORLD, &exposed,
                   &window);
  MPI_Win_fence(0, window);
  for (size_t w = 0; w < sizeof ways / sizeof ways[0]; ++w)
    for (int c = 0; c < counts_size; ++c) {
      alarm(60);
      if (getenv("LEGAL_VERBOSE") && rank == 0) fprintf(stderr, "%s %d\n", ways[w].name, counts[c]);
      go(&ways[w], counts[c]);
    }
  MPI_Win_free(&window);
  MPI_Comm_free(&other);
  free(in);
  free(out);
  return finish();
}
