/* Requests of collectives and of messages in one array, through every completion call. */
#include "legal.h"

enum { requests = 7, mixed_count = 3000 };

static int in[mixed_count], out[2][mixed_count], ring_in[2], ring_out[2], bcast_value;

/* Null, two allreduces, a broadcast, two receives and two sends, interleaved; 7 with the null. */
static void post(MPI_Request* r, int count) {
  const int next = (rank + 1) % nranks, previous = (rank + nranks - 1) % nranks;
  fill(in, count, rank);
  memset(out, 0xff, sizeof out);
  ring_in[0] = ring_in[1] = -1;
  ring_out[0] = 10 * rank;
  ring_out[1] = 10 * rank + 1;
  bcast_value = rank == nranks - 1 ? 4711 : 0;
  r[0] = MPI_REQUEST_NULL;
  MPI_Irecv(&ring_in[0], 1, MPI_INT, previous, 10, MPI_COMM_WORLD, &r[1]);
  MPI_Iallreduce(in, out[0], count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &r[2]);
  MPI_Isend(&ring_out[0], 1, MPI_INT, next, 10, MPI_COMM_WORLD, &r[3]);
  MPI_Ibcast(&bcast_value, 1, MPI_INT, nranks - 1, MPI_COMM_WORLD, &r[4]);
  MPI_Iallreduce(in, out[1], count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &r[5]);
  MPI_Irecv(&ring_in[1], 1, MPI_INT, previous, 11, MPI_COMM_WORLD, &r[6]);
  MPI_Send(&ring_out[1], 1, MPI_INT, next, 11, MPI_COMM_WORLD);
}

static void check(const MPI_Request* r, int count) {
  const int previous = (rank + nranks - 1) % nranks;
  for (int i = 0; i < requests; ++i) CHECK(r[i] == MPI_REQUEST_NULL);
  CHECK(is_sum(out[0], count, nranks) && is_sum(out[1], count, nranks));
  CHECK(ring_in[0] == 10 * previous && ring_in[1] == 10 * previous + 1);
  CHECK(bcast_value == 4711);
}

static void waitall(MPI_Request* r) {
  MPI_Status statuses[requests];
  int received = -1;
  MPI_Waitall(requests, r, statuses);
  CHECK(statuses[1].MPI_SOURCE == (rank + nranks - 1) % nranks && statuses[1].MPI_TAG == 10);
  MPI_Get_count(&statuses[6], MPI_INT, &received);
  CHECK(received == 1);
}
static void waitany(MPI_Request* r) {
  int seen[requests] = {0};
  for (int left = requests - 1; left > 0; --left) {
    int index = -1;
    MPI_Waitany(requests, r, &index, MPI_STATUS_IGNORE);
    CHECK(index > 0 && index < requests && !seen[index] && r[index] == MPI_REQUEST_NULL);
    seen[index] = 1;
  }
  int index = 0;
  MPI_Waitany(requests, r, &index, MPI_STATUS_IGNORE);
  CHECK(index == MPI_UNDEFINED);
}
static void some(MPI_Request* r, int (*call)(int, MPI_Request*, int*, int*, MPI_Status*)) {
  int indices[requests], done = 0, left = requests - 1;
  while (left > 0) {
    call(requests, r, &done, indices, MPI_STATUSES_IGNORE);
    CHECK(done >= 0 && done <= left);
    for (int i = 0; i < done; ++i) CHECK(r[indices[i]] == MPI_REQUEST_NULL);
    left -= done;
  }
  call(requests, r, &done, indices, MPI_STATUSES_IGNORE);
  CHECK(done == MPI_UNDEFINED);
}
static int waitsome_call(int n, MPI_Request* r, int* done, int* indices, MPI_Status* s) {
  return MPI_Waitsome(n, r, done, indices, s);
}
static int testsome_call(int n, MPI_Request* r, int* done, int* indices, MPI_Status* s) {
  return MPI_Testsome(n, r, done, indices, s);
}
static void waitsome(MPI_Request* r) {
  some(r, waitsome_call);
}
static void testsome(MPI_Request* r) {
  some(r, testsome_call);
}
static void testall(MPI_Request* r) {
  int flag = 0;
  while (!flag) MPI_Testall(requests, r, &flag, MPI_STATUSES_IGNORE);
}
static void testany(MPI_Request* r) {
  for (int left = requests - 1; left > 0;) {
    int index = -1, flag = 0;
    MPI_Testany(requests, r, &index, &flag, MPI_STATUS_IGNORE);
    if (flag) {
      CHECK(index != MPI_UNDEFINED);
      --left;
    }
  }
}
/* Asks without completing, then completes one by one from the end. */
static void get_status(MPI_Request* r) {
  int flag = 0;
  while (!flag) MPI_Request_get_status(r[5], &flag, MPI_STATUS_IGNORE);
  CHECK(r[5] != MPI_REQUEST_NULL);
  for (int i = requests - 1; i >= 0; --i) MPI_Wait(&r[i], MPI_STATUS_IGNORE);
}

int main(void) {
  void (*const ways[])(MPI_Request*) = {waitall, waitany, waitsome,  testsome,
                                        testall, testany, get_status};
  MPI_Request r[requests];
  start();
  for (int round = 0; round < 3; ++round)
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; ++w) {
      const int count = round == 0 ? 1 : round == 1 ? 100 : mixed_count;
      post(r, count);
      ways[w](r);
      check(r, count);
    }
  return finish();
}
