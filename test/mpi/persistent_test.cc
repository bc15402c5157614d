// Persistent collectives on device memory, which tutti performs itself: starts in opposite orders, several at
// once, requests that outlive their communicator, thousands of them, faults, threads. Every call here has a
// buffer on a device on rank 0, so all must have been native.
//
//   mpirun -n 3 -x LD_PRELOAD=libtutti.so persistent_test --memory libtutti_emu.so
//
// Without --memory, on host memory, it shows that what does not say `native` is legal.
#include <mpi.h>
#include <unistd.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "complete.hpp"
#include "kinds.hpp"
#include "knobs.hpp"

#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define INIT(NAME) MPI_##NAME##_init
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define INIT(NAME) MPIX_##NAME##_init
#endif

#ifndef INIT
int main() {
  return 77;
}
#else

namespace {

using Random = std::mt19937_64;

struct Options {
  std::string memory;
  std::string only;
  uint64_t seed = 0;
  int rounds = 12;
  bool threads = false;
};

Options options;
int rank = 0;
int nranks = 1;
uint64_t made = 0;  // requests, all of them native
Random shared;      // the same on all ranks
Random own;

#define CHECK(condition)                                                                  \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "persistent_test:%d: rank %d of %d, seed %llu: %s is false\n", \
                   __LINE__, rank, nranks, static_cast<unsigned long long>(options.seed), \
                   #condition);                                                           \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                       \
    }                                                                                     \
  } while (0)

int pick(Random& random, int n) {
  return static_cast<int>(random() % static_cast<uint64_t>(n));
}

kinds::Kind draw_kind() {
  if (options.memory.empty()) return kinds::Kind::host;
  if (rank == 0) return kinds::Kind::device;
  constexpr kinds::Kind kinds[] = {kinds::Kind::device, kinds::Kind::device, kinds::Kind::managed,
                                   kinds::Kind::host};
  return kinds[pick(own, 4)];
}

enum class What {
  allreduce,
  bcast,
  reduce,
  allgather,
  alltoall,
  gather,
  scatter,
  reduce_scatter_block,
  allreduce_in_place,
  bcast_with_gaps,
};
constexpr int whats = 10;
constexpr int poison = -77;

// One persistent call with its buffers. Sums are of ints that wrap.
class Job {
 public:
  Job(MPI_Comm comm, What what, int count, int root, unsigned salt)
      : what_(what), count_(count), root_(root), salt_(salt) {
    MPI_Comm_rank(comm, &rank_);
    MPI_Comm_size(comm, &nranks_);
    const bool blocks =
        what == What::alltoall || what == What::scatter || what == What::reduce_scatter_block;
    const bool gathers = what == What::allgather || what == What::alltoall || what == What::gather;
    const int out = gathers ? nranks_ : what == What::bcast_with_gaps ? 2 : 1;
    send_ints_ = static_cast<size_t>(count) * static_cast<size_t>(blocks ? nranks_ : 1);
    recv_ints_ = static_cast<size_t>(count) * static_cast<size_t>(out);
    send_ = std::make_unique<kinds::Memory>(draw_kind(), std::vector<char>(send_ints_ * 4));
    recv_ = std::make_unique<kinds::Memory>(draw_kind(), std::vector<char>(recv_ints_ * 4));
    create(comm);
    ++made;
  }

  ~Job() {
    if (gapped_ != MPI_DATATYPE_NULL) MPI_Type_free(&gapped_);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  MPI_Request request = MPI_REQUEST_NULL;

  void fill(unsigned round) {
    round_ = round;
    std::vector<int> in(send_ints_);
    for (size_t i = 0; i < in.size(); ++i) in[i] = value(rank_, i);
    put(*send_, in);
    std::vector<int> out(recv_ints_, poison);
    if (what_ == What::allreduce_in_place)
      for (size_t i = 0; i < out.size(); ++i) out[i] = value(rank_, i);
    if (what_ == What::bcast && rank_ == root_)
      for (size_t i = 0; i < out.size(); ++i) out[i] = value(rank_, i);
    if (what_ == What::bcast_with_gaps && rank_ == root_)
      for (size_t i = 0; i < out.size(); i += 2) out[i] = value(rank_, i / 2);
    put(*recv_, out);
  }

  bool right() const {
    const std::vector<char> bytes = recv_->read();
    std::vector<int> got(recv_ints_);
    std::memcpy(got.data(), bytes.data(), bytes.size());
    for (size_t i = 0; i < got.size(); ++i)
      if (got[i] != expected(i)) return false;
    return true;
  }

 private:
  void create(MPI_Comm comm) {
    const MPI_Info none = MPI_INFO_NULL;
    void* in = send_->data();
    void* out = recv_->data();
    const int n = count_;
    int rc = MPI_SUCCESS;
    switch (what_) {
      case What::allreduce:
        rc = INIT(Allreduce)(in, out, n, MPI_INT, MPI_SUM, comm, none, &request);
        break;
      case What::allreduce_in_place:
        rc = INIT(Allreduce)(MPI_IN_PLACE, out, n, MPI_INT, MPI_SUM, comm, none, &request);
        break;
      case What::bcast:
        rc = INIT(Bcast)(out, n, MPI_INT, root_, comm, none, &request);
        break;
      case What::bcast_with_gaps: {
        MPI_Type_vector(n, 1, 2, MPI_INT, &gapped_);
        MPI_Type_commit(&gapped_);
        rc = INIT(Bcast)(out, 1, gapped_, root_, comm, none, &request);
        // Before the first start; Open MPI 4.1 itself does not keep the type.
        if (!options.memory.empty()) MPI_Type_free(&gapped_);
        break;
      }
      case What::reduce:
        rc = INIT(Reduce)(in, out, n, MPI_INT, MPI_SUM, root_, comm, none, &request);
        break;
      case What::allgather:
        rc = INIT(Allgather)(in, n, MPI_INT, out, n, MPI_INT, comm, none, &request);
        break;
      case What::alltoall:
        rc = INIT(Alltoall)(in, n, MPI_INT, out, n, MPI_INT, comm, none, &request);
        break;
      case What::gather:
        rc = INIT(Gather)(in, n, MPI_INT, out, n, MPI_INT, root_, comm, none, &request);
        break;
      case What::scatter:
        rc = INIT(Scatter)(in, n, MPI_INT, out, n, MPI_INT, root_, comm, none, &request);
        break;
      case What::reduce_scatter_block:
        rc = INIT(Reduce_scatter_block)(in, out, n, MPI_INT, MPI_SUM, comm, none, &request);
        break;
    }
    CHECK(rc == MPI_SUCCESS);
  }

  int value(int of, size_t i) const {
    return static_cast<int>(salt_ * 7919u + static_cast<unsigned>(of) * 104729u + round_ * 17u +
                            static_cast<unsigned>(i) * 3u);
  }
  int sum(size_t i) const {
    unsigned all = 0;
    for (int r = 0; r < nranks_; ++r) all += static_cast<unsigned>(value(r, i));
    return static_cast<int>(all);
  }
  int expected(size_t i) const {
    const auto n = static_cast<size_t>(count_);
    const size_t mine = static_cast<size_t>(rank_) * n;
    switch (what_) {
      case What::allreduce:
      case What::allreduce_in_place:
        return sum(i);
      case What::bcast:
        return value(root_, i);
      case What::bcast_with_gaps:
        return i % 2 == 0 ? value(root_, i / 2) : poison;
      case What::reduce:
        return rank_ == root_ ? sum(i) : poison;
      case What::allgather:
        return value(static_cast<int>(i / n), i % n);
      case What::alltoall:
        return value(static_cast<int>(i / n), mine + i % n);
      case What::gather:
        return rank_ == root_ ? value(static_cast<int>(i / n), i % n) : poison;
      case What::scatter:
        return value(root_, mine + i);
      case What::reduce_scatter_block:
        return sum(mine + i);
    }
    return 0;
  }
  static void put(kinds::Memory& memory, const std::vector<int>& values) {
    std::vector<char> bytes(values.size() * 4);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    memory.write(bytes);
  }

  What what_;
  int count_;
  int root_;
  unsigned salt_;
  int rank_ = 0;
  int nranks_ = 1;
  unsigned round_ = 0;
  MPI_Datatype gapped_ = MPI_DATATYPE_NULL;
  size_t send_ints_ = 0;
  size_t recv_ints_ = 0;
  std::unique_ptr<kinds::Memory> send_;
  std::unique_ptr<kinds::Memory> recv_;
};

using Jobs = std::vector<std::unique_ptr<Job>>;

int draw_count(Random& random) {
  constexpr int most[] = {4, 300, 5000, 40000};
  return 1 + pick(random, most[pick(random, 4)]);
}

std::unique_ptr<Job> draw_job(MPI_Comm comm) {
  const auto what = static_cast<What>(pick(shared, whats));
  const int count = draw_count(shared);
  const int root = pick(shared, nranks);
  const auto salt = static_cast<unsigned>(shared());
  return std::make_unique<Job>(comm, what, count, root, salt);
}

MPI_Comm new_comm() {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return comm;
}

void free_all(Jobs& jobs) {
  std::shuffle(jobs.begin(), jobs.end(), own);
  for (auto& job : jobs) {
    CHECK(MPI_Request_free(&job->request) == MPI_SUCCESS);
    CHECK(job->request == MPI_REQUEST_NULL);
  }
  jobs.clear();
}

// ---- The cases.

// Starts jobs[order[i]], alone or several at once; at drawn places ordinary calls on the same communicator,
// which are in one order on all ranks.
void start_in_own_order(MPI_Comm comm, Jobs& jobs, std::vector<MPI_Request>& requests,
                        MPI_Request* ordinary, int* sum) {
  const auto n = static_cast<int>(jobs.size());
  std::vector<int> order(jobs.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), own);
  const int at = pick(own, n + 1);
  const int blocking_at = at + pick(own, n + 1 - at);
  for (int i = 0; i <= n;) {
    if (i >= at && *ordinary == MPI_REQUEST_NULL)
      CHECK(MPI_Iallreduce(&rank, sum, 1, MPI_INT, MPI_SUM, comm, ordinary) == MPI_SUCCESS);
    if (i == blocking_at) {
      int most = -1;
      CHECK(MPI_Allreduce(&rank, &most, 1, MPI_INT, MPI_MAX, comm) == MPI_SUCCESS);
      CHECK(most == nranks - 1);
    }
    if (i == n) break;
    const int until = i < blocking_at ? blocking_at : n;
    const int together = 1 + pick(own, std::min(3, until - i));
    std::vector<MPI_Request> some;
    for (int k = 0; k < together; ++k)
      some.push_back(jobs[static_cast<size_t>(order[static_cast<size_t>(i + k)])]->request);
    CHECK((together == 1 && own() % 2 == 0 ? MPI_Start(some.data())
                                           : MPI_Startall(together, some.data())) == MPI_SUCCESS);
    i += together;
  }
  requests.clear();
  for (const auto& job : jobs) requests.push_back(job->request);
}

// Completes all, by calls drawn on each rank.
void complete_all(std::vector<MPI_Request>& requests) {
  const auto n = static_cast<int>(requests.size());
  std::vector<int> indices(requests.size());
  int done = 0;
  switch (pick(own, 5)) {
    case 0:
      CHECK(MPI_Waitall(n, requests.data(), MPI_STATUSES_IGNORE) == MPI_SUCCESS);
      return;
    case 1:
      for (int i = 0; i < n; ++i) {
        int index = 0;
        CHECK(MPI_Waitany(n, requests.data(), &index, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        CHECK(index != MPI_UNDEFINED);
      }
      return;
    case 2:
      while (done < n) {
        int count = 0;
        CHECK(MPI_Testsome(n, requests.data(), &count, indices.data(), MPI_STATUSES_IGNORE) ==
              MPI_SUCCESS);
        CHECK(count != MPI_UNDEFINED);
        done += count;
      }
      return;
    case 3:
      for (int flag = 0; flag == 0;)
        CHECK(MPI_Testall(n, requests.data(), &flag, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
      return;
    default:
      std::iota(indices.begin(), indices.end(), 0);
      std::shuffle(indices.begin(), indices.end(), own);
      for (const int i : indices)
        CHECK(complete(&requests[static_cast<size_t>(i)], pick(own, completions)) == MPI_SUCCESS);
  }
}

void orders() {
  for (int i = 0; i < options.rounds; ++i) {
    MPI_Comm comm = new_comm();
    Jobs jobs;
    const int n = 1 + pick(shared, 9);
    for (int k = 0; k < n; ++k) jobs.push_back(draw_job(comm));
    std::vector<MPI_Request> requests;
    for (unsigned round = 0; round < 3; ++round) {
      for (auto& job : jobs) job->fill(round);
      MPI_Request ordinary = MPI_REQUEST_NULL;
      int sum = -1;
      if (own() % 4 == 0) usleep(static_cast<useconds_t>(own() % 3000));
      start_in_own_order(comm, jobs, requests, &ordinary, &sum);
      requests.push_back(ordinary);
      complete_all(requests);
      CHECK(sum == nranks * (nranks - 1) / 2);
      for (const auto& job : jobs) CHECK(job->right());
    }
    free_all(jobs);
    MPI_Comm_free(&comm);
  }
}

// Starts go on while the program is in other calls, and nobody has to wait for the last to start.
void late() {
  MPI_Comm comm = new_comm();
  Job job(comm, What::allreduce, 3000, 0, 5);
  job.fill(1);
  int word = 0;
  if (rank == 0) usleep(30000);
  CHECK(MPI_Start(&job.request) == MPI_SUCCESS);
  for (int r = 1; rank == 0 && r < nranks; ++r) MPI_Send(&r, 1, MPI_INT, r, 3, comm);
  if (rank != 0) MPI_Recv(&word, 1, MPI_INT, 0, 3, comm, MPI_STATUS_IGNORE);
  CHECK(MPI_Wait(&job.request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  CHECK(job.right());
  // Of an inactive one the status is empty.
  MPI_Status status;
  status.MPI_SOURCE = 99;
  CHECK(MPI_Wait(&job.request, &status) == MPI_SUCCESS);
  CHECK(status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG);
  CHECK(job.request != MPI_REQUEST_NULL);
  CHECK(MPI_Request_free(&job.request) == MPI_SUCCESS);
  MPI_Comm_free(&comm);
}

// The communicator goes first; native.
void outlive() {
  if (options.memory.empty() || nranks == 1) return;
  MPI_Comm comm = new_comm();
  Jobs jobs;
  for (int k = 0; k < 4; ++k) jobs.push_back(draw_job(comm));
  std::vector<MPI_Request> requests;
  for (auto& job : jobs) requests.push_back(job->request);
  // One of them while it is active.
  jobs[0]->fill(0);
  CHECK(MPI_Start(&requests[0]) == MPI_SUCCESS);
  MPI_Comm_free(&comm);
  CHECK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE) == MPI_SUCCESS);
  CHECK(jobs[0]->right());
  for (unsigned round = 1; round < 4; ++round) {
    for (auto& job : jobs) job->fill(round);
    if (rank % 2 == 0) {
      CHECK(MPI_Startall(4, requests.data()) == MPI_SUCCESS);
    } else {
      for (int k = 3; k >= 0; --k)
        CHECK(MPI_Start(&requests[static_cast<size_t>(k)]) == MPI_SUCCESS);
    }
    complete_all(requests);
    for (const auto& job : jobs) CHECK(job->right());
  }
  free_all(jobs);
}

// Many made and freed, some of them started; then many at once, in opposite orders.
void many() {
  MPI_Comm comm = new_comm();
  const auto begin = std::chrono::steady_clock::now();
  const int all = options.memory.empty() ? 500 : 10000;
  kinds::Memory buffer(draw_kind(), std::vector<char>(64));
  for (int i = 0; i < all; ++i) {
    MPI_Request request = MPI_REQUEST_NULL;
    CHECK(INIT(Allreduce)(MPI_IN_PLACE, buffer.data(), 8, MPI_INT, MPI_MAX, comm, MPI_INFO_NULL,
                          &request) == MPI_SUCCESS);
    ++made;
    if (i % 100 == 0) {
      CHECK(MPI_Start(&request) == MPI_SUCCESS);
      CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    }
    CHECK(MPI_Request_free(&request) == MPI_SUCCESS);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (rank == 0) std::printf("%d requests made and freed in %.2f s\n", all, took.count());
  Jobs jobs;
  for (int k = 0; k < 400; ++k)
    jobs.push_back(std::make_unique<Job>(comm, static_cast<What>(k % whats), 1 + k % 7, k % nranks,
                                         static_cast<unsigned>(k)));
  for (unsigned round = 0; round < 2; ++round) {
    std::vector<MPI_Request> requests;
    for (auto& job : jobs) {
      job->fill(round);
      requests.push_back(job->request);
    }
    if (rank % 2 == 1) std::reverse(requests.begin(), requests.end());
    CHECK(MPI_Startall(static_cast<int>(requests.size()), requests.data()) == MPI_SUCCESS);
    complete_all(requests);
    for (const auto& job : jobs) CHECK(job->right());
  }
  free_all(jobs);
  MPI_Comm_free(&comm);
}

int handled = 0;
void on_error(MPI_Comm*, int*, ...) {
  ++handled;
}
int copied = 0;
int copy_attribute(MPI_Comm, int, void*, void*, void*, int* flag) {
  ++copied;
  *flag = 1;
  return MPI_SUCCESS;
}

// What one rank cannot do is an error on all, heard by the error handler of the communicator; native.
void faults() {
  if (options.memory.empty() || nranks == 1) return;
  set_knob("small_lanes", 64);  // groups that end with an error keep their lanes
  MPI_Errhandler handler;
  MPI_Comm_create_errhandler(on_error, &handler);
  int key = MPI_KEYVAL_INVALID;
  MPI_Comm_create_keyval(copy_attribute, MPI_COMM_NULL_DELETE_FN, &key, nullptr);
  for (int i = 0; i < 4; ++i) {
    MPI_Comm comm = new_comm();
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Comm_set_attr(comm, key, nullptr);
    std::array<std::unique_ptr<kinds::Memory>, 2> buffers;
    std::array<MPI_Request, 2> requests;
    for (size_t k = 0; k < 2; ++k) {
      // All on devices: kernels are launched.
      buffers[k] = std::make_unique<kinds::Memory>(kinds::Kind::device, std::vector<char>(4000));
      CHECK(INIT(Allreduce)(MPI_IN_PLACE, buffers[k]->data(), 1000, MPI_INT, MPI_SUM, comm,
                            MPI_INFO_NULL, &requests[k]) == MPI_SUCCESS);
      ++made;
    }
    const long before = count_of("started");
    CHECK(MPI_Startall(2, requests.data()) == MPI_SUCCESS);
    CHECK(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE) == MPI_SUCCESS);
    // Devices that do not reach each other, or that ranks share, have no launch to refuse.
    const bool launched = count_of("started") > before;
    if (!launched) {
      if (rank == 0) std::printf("no kernels here: faults of launches not tried\n");
      for (MPI_Request& request : requests) CHECK(MPI_Request_free(&request) == MPI_SUCCESS);
      MPI_Comm_free(&comm);
      break;
    }
    if (rank == nranks - 1) CHECK(set_knob("refuse_launch", 1) == 0);
    handled = 0;
    if (rank % 2 == 1) std::swap(requests[0], requests[1]);
    CHECK(MPI_Startall(2, requests.data()) == MPI_SUCCESS);
    if (i % 2 == 0) {
      MPI_Status statuses[2];
      CHECK(MPI_Waitall(2, requests.data(), statuses) == MPI_ERR_IN_STATUS);
      CHECK(statuses[0].MPI_ERROR != MPI_SUCCESS && statuses[1].MPI_ERROR != MPI_SUCCESS);
      CHECK(handled == 1);
    } else {
      for (MPI_Request& request : requests)
        CHECK(complete(&request, pick(own, completions)) != MPI_SUCCESS);
      CHECK(handled == 2);
    }
    set_knob("refuse_launch", 0);
    // From now on each start ends so.
    CHECK(MPI_Start(&requests[0]) == MPI_SUCCESS);
    CHECK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE) != MPI_SUCCESS);
    // Neither is for MPI_Cancel.
    handled = 0;
    CHECK(MPI_Cancel(&requests[0]) != MPI_SUCCESS && handled == 1);
    for (MPI_Request& request : requests) CHECK(MPI_Request_free(&request) == MPI_SUCCESS);
    MPI_Comm_free(&comm);
  }
  CHECK(copied == 0);
  MPI_Comm_free_keyval(&key);
  MPI_Errhandler_free(&handler);
}

// Two threads with requests of one communicator, on every rank in another order.
void threads() {
  if (!options.threads) return;
  MPI_Comm comm = new_comm();
  Jobs jobs;
  for (int k = 0; k < 6; ++k) jobs.push_back(draw_job(comm));
  const auto run = [&](size_t first, uint64_t seed) {
    Random random(seed);
    for (unsigned round = 0; round < 20; ++round) {
      std::array<size_t, 3> order = {first, first + 1, first + 2};
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t k : order) {
        jobs[k]->fill(round);
        CHECK(MPI_Start(&jobs[k]->request) == MPI_SUCCESS);
      }
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t k : order) {
        CHECK(complete(&jobs[k]->request, pick(random, completions)) == MPI_SUCCESS);
        CHECK(jobs[k]->right());
      }
    }
  };
  const uint64_t seed = own();
  std::thread other(run, 3, seed);
  run(0, seed + 1);
  other.join();
  free_all(jobs);
  MPI_Comm_free(&comm);
}

// Requests that nobody frees, and a freed one that is active, which is erroneous: it ends first; native.
void left_behind() {
  if (options.memory.empty() || nranks == 1) return;
  MPI_Comm comm = new_comm();
  Job active(comm, What::allgather, 700, 0, 9);
  active.fill(2);
  CHECK(MPI_Start(&active.request) == MPI_SUCCESS);
  CHECK(MPI_Request_free(&active.request) == MPI_SUCCESS);
  CHECK(active.right());
  static std::unique_ptr<Job> left;
  left = std::make_unique<Job>(comm, What::alltoall, 70, 0, 9);
  left->fill(3);
  CHECK(MPI_Start(&left->request) == MPI_SUCCESS);
  CHECK(MPI_Wait(&left->request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  CHECK(left->right());
  left.release();  // its memory may be tutti's until the end
}

using CountPath = unsigned long long (*)(const char*, int);
CountPath count_path() {
  return reinterpret_cast<CountPath>(dlsym(RTLD_DEFAULT, "tutti_count_path"));
}

// More communicators than the board has places: those that find none left go through host copies, on all
// ranks alike. Before it all were native.
void exhausted() {
#ifndef MPICH_VERSION  // whose own persistent calls do not always end
  if (options.memory.empty() || nranks != 2 || count_path() == nullptr) return;
  constexpr size_t all = 1000;
  constexpr size_t some = 80;
  std::vector<MPI_Comm> comms;
  std::vector<MPI_Request> requests(some);
  kinds::Memory buffer(kinds::Kind::device, std::vector<char>(4));
  for (size_t i = 0; i < all; ++i) {
    comms.push_back(new_comm());
    int sum = 0;
    CHECK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comms.back()) == MPI_SUCCESS && sum == 1);
  }
  CHECK(count_path()(nullptr, 1) == 0);
  const uint64_t native = count_path()(nullptr, 0);
  for (size_t i = 0; i < some; ++i)
    CHECK(INIT(Allreduce)(MPI_IN_PLACE, buffer.data(), 1, MPI_INT, MPI_SUM, comms[i], MPI_INFO_NULL,
                          &requests[i]) == MPI_SUCCESS);
  CHECK(count_path()(nullptr, 0) > native && count_path()(nullptr, 1) > 0);
  CHECK(count_path()(nullptr, 0) - native + count_path()(nullptr, 1) == some);
  for (MPI_Request& request : requests) {
    const int word = 5 + rank;
    std::vector<char> bytes(4);
    std::memcpy(bytes.data(), &word, 4);
    buffer.write(bytes);
    CHECK(MPI_Start(&request) == MPI_SUCCESS);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    int sum = 0;
    std::memcpy(&sum, buffer.read().data(), 4);
    CHECK(sum == 11);
    CHECK(MPI_Request_free(&request) == MPI_SUCCESS);
  }
  for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
#endif
}

void check_paths() {
  const CountPath path = count_path();
  if (rank == 0) std::printf("%llu persistent calls\n", static_cast<unsigned long long>(made));
  if (path == nullptr || options.memory.empty()) return;
  if (rank == 0) std::printf("%llu native, %llu bounced\n", path(nullptr, 0), path(nullptr, 1));
  CHECK(nranks == 1 || path(nullptr, 1) == 0);
  CHECK(nranks == 1 || path(nullptr, 0) >= made);
}

void run() {
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &nranks);
  if (options.seed == 0) options.seed = std::random_device()() | 1;
  MPI_Bcast(&options.seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  shared.seed(options.seed);
  own.seed(options.seed + 1 + static_cast<uint64_t>(rank));
  std::string why;
  if (!kinds::open_memory(options.memory, rank, &why)) {
    std::fprintf(stderr, "persistent_test: %s\n", why.c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  struct Named {
    const char* name;
    void (*body)();
  };
  for (const Named& one : {Named{"orders", orders}, Named{"late", late}, Named{"outlive", outlive},
                           Named{"many", many}, Named{"faults", faults}, Named{"threads", threads},
                           Named{"left_behind", left_behind}}) {
    if (!options.only.empty() && options.only != one.name) continue;
    one.body();
    MPI_Barrier(MPI_COMM_WORLD);
  }
  check_paths();
  if (options.only.empty() || options.only == "exhausted") exhausted();
  if (rank == 0)
    std::printf("persistent_test: seed %llu: passed\n",
                static_cast<unsigned long long>(options.seed));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Persistent collectives on device memory, in orders of their own.");
  app.add_option("--memory", options.memory, "Path of libtutti_emu.so, or cuda; else host memory.");
  app.add_option("--only", options.only, "Which case.");
  app.add_option("--seed", options.seed, "Seed; 0 draws one.");
  app.add_option("--rounds", options.rounds, "How many sets of requests in other orders.");
  app.add_flag("--threads", options.threads, "MPI_THREAD_MULTIPLE.");
  CLI11_PARSE(app, argc, argv);
  alarm(140);
  int provided = MPI_THREAD_SINGLE;
  if (options.threads)
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  else
    MPI_Init(nullptr, nullptr);
  options.threads = provided == MPI_THREAD_MULTIPLE;
  run();
  std::fflush(stdout);
  MPI_Finalize();
  return 0;
}
#endif
