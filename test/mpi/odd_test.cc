// Legal and illegal calls of the odd kind, each a case with a number. What a case prints (results, error classes,
// whether memory beside the buffers changed) must be the same with tutti and without it; `run` beside this file
// compares the two. Every buffer has canaries round it and is of the kind of memory that is asked for.
//
//   mpirun -n 3 odd_test --results FILE [--memory libtutti_emu.so --kind device|managed|pinned|mixed] [--only N]
#include <mpi.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

#include <CLI/CLI.hpp>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kinds.hpp"

namespace {

int rank = 0;
int nranks = 1;
std::FILE* results = nullptr;
std::string memory_kind = "host";

[[gnu::format(printf, 1, 2)]] void say(const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::vfprintf(results, format, args);
  va_end(args);
  std::fflush(results);
}

kinds::Kind next_kind() {
  static int n = 0;
  if (memory_kind == "host") return kinds::Kind::host;
  if (memory_kind == "mixed")
    return std::vector<kinds::Kind>{kinds::Kind::host, kinds::Kind::device, kinds::Kind::managed,
                                    kinds::Kind::device, kinds::Kind::pinned}[(n++ + rank) % 5];
  return kinds::find_kind(memory_kind);
}

// n ints with canaries, every one (first + i); `show` prints a hash of them and what became of the canaries.
class Ints {
 public:
  explicit Ints(int64_t n, int first = -7) : Ints(n, first, next_kind()) {}
  Ints(int64_t n, int first, kinds::Kind kind) : n_(n) {
    std::vector<char> all((static_cast<size_t>(n) + 2 * margin) * sizeof(int), 0x5a);
    for (int64_t i = 0; i < n; ++i) {
      const int value = first + static_cast<int>(i);
      std::memcpy(&all[(static_cast<size_t>(i) + margin) * sizeof(int)], &value, sizeof value);
    }
    memory_ = std::make_unique<kinds::Memory>(kind, all);
  }
  int* at(int64_t i = 0) const { return reinterpret_cast<int*>(memory_->data()) + margin + i; }
  operator int*() const { return at(); }
  void set(int first) {
    std::vector<char> all = memory_->read();
    for (int64_t i = 0; i < n_; ++i) {
      const int value = first + static_cast<int>(i);
      std::memcpy(&all[(static_cast<size_t>(i) + margin) * sizeof(int)], &value, sizeof value);
    }
    memory_->write(all);
  }
  void show(const char* what) const {
    const std::vector<char> all = memory_->read();
    uint32_t hash = 2166136261u;
    bool whole = true;
    for (size_t i = 0; i < all.size(); ++i) {
      if (i / sizeof(int) >= margin && i / sizeof(int) < margin + static_cast<size_t>(n_))
        hash = (hash ^ static_cast<uint8_t>(all[i])) * 16777619u;
      else
        whole = whole && all[i] == 0x5a;
    }
    int first[4] = {};
    std::memcpy(first, &all[margin * sizeof(int)],
                std::min<size_t>(4, static_cast<size_t>(n_)) * sizeof(int));
    say("  %s %08x %d %d %d %d%s\n", what, hash, first[0], first[1], first[2], first[3],
        whole ? "" : " CANARY");
  }

 private:
  static constexpr size_t margin = 64;
  int64_t n_;
  std::unique_ptr<kinds::Memory> memory_;
};

void code(const char* what, int rc) {
  int cls = MPI_SUCCESS;
  if (rc != MPI_SUCCESS) MPI_Error_class(rc, &cls);
  say("  %s class %d\n", what, cls);
}

void add(void* in, void* inout, int* n, MPI_Datatype*) {
  for (int i = 0; i < *n; ++i) static_cast<int*>(inout)[i] += static_cast<int*>(in)[i];
}
// 2 x 2 matrices: does not commute.
void times(void* in, void* inout, int* n, MPI_Datatype*) {
  auto* a = static_cast<int*>(in);
  auto* b = static_cast<int*>(inout);
  for (int i = 0; i < *n; ++i, a += 4, b += 4) {
    const int c[4] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3],
                      a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]};
    std::memcpy(b, c, sizeof c);
  }
}

MPI_Comm world() {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return comm;
}

int wait(MPI_Request* request) {
  return MPI_Wait(request, MPI_STATUS_IGNORE);
}

// ---- The cases.

void ignored_arguments_in_place(MPI_Comm c) {
  for (const int n : {1, 300}) {
    Ints a(n * nranks, 10 * rank);
    Ints b(n * nranks, 20 * rank);
    Ints d(n * nranks, 30 * rank);
    std::vector<int> counts(static_cast<size_t>(nranks), n);
    std::vector<int> displs;
    for (int i = 0; i < nranks; ++i) displs.push_back(n * i);
    code("alltoall", MPI_Alltoall(MPI_IN_PLACE, -1, MPI_DATATYPE_NULL, a, n, MPI_INT, c));
    a.show("alltoall");
    code("allgather", MPI_Allgather(MPI_IN_PLACE, -3, MPI_DATATYPE_NULL, b, n, MPI_INT, c));
    b.show("allgather");
    code("allgatherv", MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, d, counts.data(),
                                      displs.data(), MPI_INT, c));
    d.show("allgatherv");
    Ints e(n * nranks, 40 * rank);
    code("alltoallv", MPI_Alltoallv(MPI_IN_PLACE, nullptr, nullptr, MPI_DATATYPE_NULL, e,
                                    counts.data(), displs.data(), MPI_INT, c));
    e.show("alltoallv");
    for (int root = 0; root < nranks; ++root) {
      Ints g(n * nranks, 50 * rank);
      Ints s(n, 60 * rank);
      const bool is = rank == root;
      code("gather", is ? MPI_Gather(MPI_IN_PLACE, -1, MPI_DATATYPE_NULL, g, n, MPI_INT, root, c)
                        : MPI_Gather(s, n, MPI_INT, reinterpret_cast<void*>(8), -5,
                                     MPI_DATATYPE_NULL, root, c));
      if (is) g.show("gather");
      code("scatter", is ? MPI_Scatter(g, n, MPI_INT, MPI_IN_PLACE, -1, MPI_DATATYPE_NULL, root, c)
                         : MPI_Scatter(reinterpret_cast<void*>(8), -5, MPI_DATATYPE_NULL, s, n,
                                       MPI_INT, root, c));
      s.show("scatter");
      code("gatherv",
           is ? MPI_Gatherv(MPI_IN_PLACE, -1, MPI_DATATYPE_NULL, g, counts.data(), displs.data(),
                            MPI_INT, root, c)
              : MPI_Gatherv(s, n, MPI_INT, nullptr, nullptr, nullptr, MPI_DATATYPE_NULL, root, c));
      if (is) g.show("gatherv");
      code("scatterv",
           is ? MPI_Scatterv(g, counts.data(), displs.data(), MPI_INT, MPI_IN_PLACE, -1,
                             MPI_DATATYPE_NULL, root, c)
              : MPI_Scatterv(nullptr, nullptr, nullptr, MPI_DATATYPE_NULL, s, n, MPI_INT, root, c));
      s.show("scatterv");
    }
  }
}

// Programs pass one pointer for both on ranks where the receive buffer means nothing.
void reduce_of_one_pointer(MPI_Comm c) {
  for (int root = 0; root < nranks; ++root) {
    Ints a(77, rank + 1);
    code("reduce", rank == root ? MPI_Reduce(MPI_IN_PLACE, a, 77, MPI_INT, MPI_SUM, root, c)
                                : MPI_Reduce(a, a, 77, MPI_INT, MPI_SUM, root, c));
    a.show("reduce");
    Ints b(77, rank + 1);
    code("reduce to null",
         MPI_Reduce(b, rank == root ? b.at() + 0 : nullptr, 0, MPI_INT, MPI_SUM, root, c));
  }
}

// Erroneous, and common: the base says what becomes of it.
void equal_buffers(MPI_Comm c) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (const int n : {0, 1, 2, 500}) {
    Ints a(n * nranks + 1, rank);
    MPI_Request request = MPI_REQUEST_NULL;
    const auto fresh = [&] { a.set(rank); };
    // Not all MPIs refuse it, nor do those compute the same: the classes tell, and that nobody is left waiting.
    code("allreduce", MPI_Allreduce(a, a, n, MPI_INT, MPI_SUM, c));
    fresh();
    code("scan", MPI_Scan(a, a, n, MPI_INT, MPI_SUM, c));
    fresh();
    code("exscan", MPI_Exscan(a, a, n, MPI_INT, MPI_SUM, c));
    fresh();
    code("reduce_scatter_block", MPI_Reduce_scatter_block(a, a, n, MPI_INT, MPI_SUM, c));
    fresh();
    std::vector<int> counts(static_cast<size_t>(nranks), n);
    std::vector<int> displs;
    for (int i = 0; i < nranks; ++i) displs.push_back(n * i);
    code("reduce_scatter", MPI_Reduce_scatter(a, a, counts.data(), MPI_INT, MPI_SUM, c));
    fresh();
    code("alltoall", MPI_Alltoall(a, n, MPI_INT, a, n, MPI_INT, c));
    for (const bool own : {true, false}) {
      // Of its own block, which works like in place where it works; or of the first.
      fresh();
      code("allgather", MPI_Allgather(a.at(own ? n * rank : 0), n, MPI_INT, a, n, MPI_INT, c));
      if (own) a.show("allgather");
      fresh();
      code("allgatherv", MPI_Allgatherv(a.at(own ? n * rank : 0), n, MPI_INT, a, counts.data(),
                                        displs.data(), MPI_INT, c));
      if (own) a.show("allgatherv");
      fresh();
      int rc = MPI_Iallgather(a.at(own ? n * rank : 0), n, MPI_INT, a, n, MPI_INT, c, &request);
      code("iallgather", rc);
      if (rc == MPI_SUCCESS) wait(&request);
      fresh();
      for (int root = 0; root < nranks; ++root) {
        code("gather", MPI_Gather(a.at(own ? n * rank : 0), n, MPI_INT, a, n, MPI_INT, root, c));
        fresh();
        code("scatter", MPI_Scatter(a, n, MPI_INT, a.at(own ? n * rank : 0), n, MPI_INT, root, c));
        fresh();
      }
    }
    int rc = MPI_Iallreduce(a, a, n, MPI_INT, MPI_SUM, c, &request);
    code("iallreduce", rc);
    if (rc == MPI_SUCCESS) wait(&request);
    rc = MPI_Iexscan(a, a, n, MPI_INT, MPI_SUM, c, &request);
    code("iexscan", rc);
    if (rc == MPI_SUCCESS) wait(&request);
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

void zero_counts(MPI_Comm c) {
  std::vector<int> none(static_cast<size_t>(nranks), 0);
  std::vector<int> displs(static_cast<size_t>(nranks), 0);
  code("allreduce", MPI_Allreduce(nullptr, nullptr, 0, MPI_INT, MPI_SUM, c));
  code("allreduce in place", MPI_Allreduce(MPI_IN_PLACE, nullptr, 0, MPI_INT, MPI_SUM, c));
  code("bcast", MPI_Bcast(nullptr, 0, MPI_INT, 0, c));
  code("allgather", MPI_Allgather(nullptr, 0, MPI_INT, nullptr, 0, MPI_INT, c));
  code("alltoall", MPI_Alltoall(nullptr, 0, MPI_INT, nullptr, 0, MPI_INT, c));
  code("allgatherv",
       MPI_Allgatherv(nullptr, 0, MPI_INT, nullptr, none.data(), displs.data(), MPI_INT, c));
  code("reduce_scatter", MPI_Reduce_scatter(nullptr, nullptr, none.data(), MPI_INT, MPI_SUM, c));
  Ints a(4);
  code("reduce_scatter of one", MPI_Reduce_scatter(a, a, none.data(), MPI_INT, MPI_SUM, c));
  code("block", MPI_Reduce_scatter_block(nullptr, nullptr, 0, MPI_INT, MPI_SUM, c));
  code("scan", MPI_Scan(nullptr, nullptr, 0, MPI_INT, MPI_SUM, c));
  code("exscan", MPI_Exscan(nullptr, nullptr, 0, MPI_INT, MPI_SUM, c));
  // Only one rank has nothing to give, or nothing to take.
  for (int empty = 0; empty < nranks; ++empty) {
    std::vector<int> counts(static_cast<size_t>(nranks), 5);
    counts[static_cast<size_t>(empty)] = 0;
    for (int i = 0; i < nranks; ++i) displs[static_cast<size_t>(i)] = 5 * i;
    Ints s(5 * nranks, 100 * rank);
    Ints r(5 * nranks);
    const bool mine = rank == empty;
    code("allgatherv", MPI_Allgatherv(mine ? nullptr : s.at(), mine ? 0 : 5, MPI_INT, r,
                                      counts.data(), displs.data(), MPI_INT, c));
    r.show("allgatherv");
    Ints t(5);
    code("reduce_scatter",
         MPI_Reduce_scatter(s, mine ? nullptr : t.at(), counts.data(), MPI_INT, MPI_SUM, c));
    t.show("reduce_scatter");
  }
}

// Rank 0's receive buffer of an exscan is not looked at.
void exscan_of_the_first(MPI_Comm c) {
  Ints a(9, rank);
  Ints r(9);
  code("exscan", MPI_Exscan(a, r, 9, MPI_INT, MPI_SUM, c));
  r.show("exscan");
#ifndef MPICH_VERSION  // which wants one of rank 0 too
  code("exscan to nothing", MPI_Exscan(a, rank == 0 ? nullptr : r.at(), 9, MPI_INT, MPI_SUM, c));
  r.show("exscan to nothing");
#endif
  Ints b(9, rank);
  code("exscan in place", MPI_Exscan(MPI_IN_PLACE, b, 9, MPI_INT, MPI_SUM, c));
  b.show("exscan in place");
}

// The same bytes, described otherwise by each rank.
void other_descriptions(MPI_Comm c) {
  MPI_Datatype ten;
  MPI_Datatype column;
  MPI_Type_contiguous(10, MPI_INT, &ten);
  MPI_Type_vector(30, 1, 2, MPI_INT, &column);
  MPI_Type_commit(&ten);
  MPI_Type_commit(&column);
  for (const int many : {1, 3000}) {
    const int n = 30 * many;
    Ints s(2 * n, rank * 1000);
    Ints r(2 * n * nranks);
    const int how = many > 1 ? rank % 2 : rank % 3;  // columns of columns would overlap
    const int sc = how == 0 ? n : how == 1 ? 3 * many : many;
    const MPI_Datatype st = how == 0 ? MPI_INT : how == 1 ? ten : column;
    code("bcast", MPI_Bcast(s, sc, st, 0, c));
    s.show("bcast");
    MPI_Request request = MPI_REQUEST_NULL;
    code("ibcast", MPI_Ibcast(s, sc, st, nranks - 1, c, &request));
    code("wait", wait(&request));
    s.show("ibcast");
    code("allgather", MPI_Allgather(s, sc, st, r, n / 10, ten, c));
    r.show("allgather");
    code("iallgather", MPI_Iallgather(s, sc, st, r, n, MPI_INT, c, &request));
    code("wait", wait(&request));
    r.show("iallgather");
    Ints p(2 * n * nranks, rank);
    code("alltoall",
         MPI_Alltoall(p, how == 0 ? n : 3 * many, how == 0 ? MPI_INT : ten, r, n, MPI_INT, c));
    r.show("alltoall");
  }
  MPI_Type_free(&ten);
  MPI_Type_free(&column);
}

void strange_types(MPI_Comm c) {
  // Blocks that interleave: the 4 x 4 tile of two-by-two pieces, and negative bounds.
  MPI_Datatype piece;
  MPI_Datatype tile;
  MPI_Datatype four;
  MPI_Datatype shifted;
  MPI_Datatype three;
  MPI_Type_vector(2, 2, 2 * nranks, MPI_INT, &piece);
  MPI_Type_create_resized(piece, 0, 2 * sizeof(int), &tile);
  MPI_Type_commit(&tile);
  Ints s(4, 10 * rank);
  Ints r(4 * nranks);
  std::vector<int> ones(static_cast<size_t>(nranks), 1);
  std::vector<int> displs;
  for (int i = 0; i < nranks; ++i) displs.push_back(i);
  code("allgatherv", MPI_Allgatherv(s, 4, MPI_INT, r, ones.data(), displs.data(), tile, c));
  r.show("allgatherv");
  code("allgather", MPI_Allgather(s, 4, MPI_INT, r, 1, tile, c));
  r.show("allgather");
  MPI_Type_contiguous(1, MPI_INT, &four);
  MPI_Type_create_resized(four, 8, -12, &shifted);
  MPI_Type_contiguous(3, shifted, &three);
  MPI_Type_commit(&three);
  Ints n(60, 100 * rank);
  code("bcast", MPI_Bcast(n.at(30), 2, three, 0, c));
  n.show("bcast");
  Ints g(60 * nranks, 5);
  code("allgather of negative", MPI_Allgather(n.at(30), 1, three, g, 3, MPI_INT, c));
  g.show("allgather of negative");
  MPI_Type_free(&piece);
  MPI_Type_free(&tile);
  MPI_Type_free(&four);
  MPI_Type_free(&shifted);
  MPI_Type_free(&three);
}

void absolute_addresses(MPI_Comm c) {
  Ints s(12, 10 * rank);
  Ints r(12 * nranks);
  MPI_Aint at[2];
  MPI_Aint to;
  const int lengths[2] = {5, 4};
  const MPI_Datatype kinds_of[2] = {MPI_INT, MPI_INT};
  MPI_Datatype from;
  MPI_Datatype into;
  MPI_Get_address(s.at(0), &at[0]);
  MPI_Get_address(s.at(7), &at[1]);
  MPI_Get_address(r.at(0), &to);
  MPI_Type_create_struct(2, lengths, at, kinds_of, &from);
  const int all = 9 * nranks;
  MPI_Type_create_hindexed(1, &all, &to, MPI_INT, &into);
  MPI_Type_commit(&from);
  MPI_Type_commit(&into);
  code("bcast", MPI_Bcast(MPI_BOTTOM, 1, from, 0, c));
  s.show("bcast");
  code("gather", MPI_Gather(MPI_BOTTOM, 1, from, r, 9, MPI_INT, 0, c));
  r.show("gather");
  code("allgather", MPI_Allgather(MPI_BOTTOM, 1, from, r, 9, MPI_INT, c));
  r.show("allgather");
  Ints whole(9 * nranks, rank);
  code("bcast into",
       rank == 0 ? MPI_Bcast(whole, all, MPI_INT, 0, c) : MPI_Bcast(MPI_BOTTOM, 1, into, 0, c));
  r.show("bcast into");
  MPI_Type_free(&from);
  MPI_Type_free(&into);
}

// A blocking call while others are pending, waited for in the reverse order.
void pending_and_blocking(MPI_Comm c) {
  Ints a(1000, rank);
  Ints b(1000);
  Ints d(1000, 2 * rank);
  Ints e(1000);
  Ints f(50, 3 * rank);
  Ints g(50 * nranks);
  MPI_Request requests[4];
  code("iallreduce", MPI_Iallreduce(a, b, 1000, MPI_INT, MPI_SUM, c, &requests[0]));
  code("allreduce", MPI_Allreduce(d, e, 1000, MPI_INT, MPI_MAX, c));
  code("ibcast", MPI_Ibcast(f, 50, MPI_INT, 0, c, &requests[1]));
  code("iallgather", MPI_Iallgather(f.at(), 0, MPI_INT, g, 0, MPI_INT, c, &requests[2]));
  code("ibarrier", MPI_Ibarrier(c, &requests[3]));
  for (int i = 3; i >= 0; --i) code("wait", wait(&requests[i]));
  b.show("iallreduce");
  e.show("allreduce");
  f.show("ibcast");
}

void completion_calls(MPI_Comm c) {
  constexpr int n = 6;
  std::vector<std::unique_ptr<Ints>> in;
  std::vector<std::unique_ptr<Ints>> out;
  MPI_Request requests[n];
  for (int round = 0; round < 6; ++round) {
    in.clear();
    out.clear();
    for (int i = 0; i < n; ++i) {
      // Messages are the base's alone, which may know no other memory.
      const kinds::Kind kind = i == 3 || i == 4 ? kinds::Kind::host : next_kind();
      in.push_back(std::make_unique<Ints>(100 * i + 1, rank + i, kind));
      out.push_back(std::make_unique<Ints>(100 * i + 1, -7, kind));
      const int count = 100 * i + 1;
      if (i == 2)
        requests[i] = MPI_REQUEST_NULL;
      else if (i == 3)
        MPI_Irecv(*out[3], count, MPI_INT, (rank + 1) % nranks, 4, c, &requests[i]);
      else if (i == 4)
        MPI_Isend(*in[4], 301, MPI_INT, (rank + nranks - 1) % nranks, 4, c, &requests[i]);
      else
        MPI_Iallreduce(*in[static_cast<size_t>(i)], *out[static_cast<size_t>(i)], count, MPI_INT,
                       MPI_SUM, c, &requests[i]);
    }
    MPI_Status statuses[n];
    int done = 0;
    int indices[n];
    int outcount = 0;
    int flag = 0;
    switch (round) {
      case 0:
        code("waitall", MPI_Waitall(n, requests, statuses));
        say("  received from %d, tag %d\n", statuses[3].MPI_SOURCE, statuses[3].MPI_TAG);
        break;
      case 1:
        while (done < n - 1) {
          int index = -5;
          code("waitany", MPI_Waitany(n, requests, &index, &statuses[0]));
          if (index == MPI_UNDEFINED) break;
          ++done;
        }
        say("  %d of them\n", done);
        break;
      case 2:
        while (done < n - 1) {
          if (MPI_Waitsome(n, requests, &outcount, indices, statuses) != MPI_SUCCESS) break;
          if (outcount == MPI_UNDEFINED) break;
          done += outcount;
        }
        say("  %d of them\n", done);
        break;
      case 3:
        while (flag == 0) MPI_Testall(n, requests, &flag, statuses);
        break;
      case 4:
        while (done < n - 1) {
          int index = -5;
          MPI_Testany(n, requests, &index, &flag, MPI_STATUS_IGNORE);
          if (flag != 0 && index == MPI_UNDEFINED) break;
          done += flag != 0;
        }
        say("  %d of them\n", done);
        break;
      default:
        for (int i = n - 1; i >= 0; --i) {
          flag = 0;
          while (flag == 0) MPI_Request_get_status(requests[i], &flag, MPI_STATUS_IGNORE);
          code("wait", MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
        }
    }
    for (int i = 0; i < n; ++i) {
      say("  null %d\n", requests[i] == MPI_REQUEST_NULL);
      out[static_cast<size_t>(i)]->show("out");
    }
    int index = 3;
    code("waitany of none", MPI_Waitany(n, requests, &index, MPI_STATUS_IGNORE));
    say("  undefined %d\n", index == MPI_UNDEFINED);
    code("waitall of none", MPI_Waitall(0, nullptr, MPI_STATUSES_IGNORE));
  }
}

void freed_before_wait(MPI_Comm c) {
  MPI_Datatype pair;
  MPI_Op op;
  MPI_Comm dup;
  MPI_Type_contiguous(2, MPI_INT, &pair);
  MPI_Type_commit(&pair);
  MPI_Op_create(
      [](void* in, void* inout, int* n, MPI_Datatype* type) {
        int size = 0;
        MPI_Type_size(*type, &size);
        int all = *n * size / static_cast<int>(sizeof(int));
        add(in, inout, &all, type);
      },
      1, &op);
  Ints a(20, rank);
  Ints b(20);
  Ints d(20 * nranks);
  MPI_Request requests[2];
  MPI_Comm_dup(c, &dup);
  code("iallreduce", MPI_Iallreduce(a, b, 10, pair, op, c, &requests[0]));
  code("iallgather", MPI_Iallgather(a, 10, pair, d, 10, pair, dup, &requests[1]));
  MPI_Type_free(&pair);
  MPI_Op_free(&op);
#ifndef OPEN_MPI  // which fails there by itself
  MPI_Comm_free(&dup);
#endif
  code("waitall", MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
  b.show("iallreduce");
  d.show("iallgather");
#ifdef OPEN_MPI
  MPI_Comm_free(&dup);
#endif
}

void orders_and_users_operations(MPI_Comm c) {
  MPI_Op product;
  MPI_Datatype matrix;
  MPI_Op_create(times, 0, &product);
  MPI_Type_contiguous(4, MPI_INT, &matrix);
  MPI_Type_commit(&matrix);
  for (const int n : {1, 7, 500}) {
    Ints a(4 * n, rank + 2);
    Ints b(4 * n);
    code("allreduce", MPI_Allreduce(a, b, n, matrix, product, c));
    b.show("allreduce");
    for (int root = 0; root < nranks; ++root) {
      code("reduce", MPI_Reduce(a, b, n, matrix, product, root, c));
      if (rank == root) b.show("reduce");
    }
    code("scan", MPI_Scan(a, b, n, matrix, product, c));
    b.show("scan");
    Ints e(4 * n * nranks, rank + 1);
    code("block", MPI_Reduce_scatter_block(e, b, n, matrix, product, c));
    b.show("block");
    MPI_Request request = MPI_REQUEST_NULL;
    code("iallreduce", MPI_Iallreduce(MPI_IN_PLACE, a, n, matrix, product, c, &request));
    code("wait", wait(&request));
    a.show("iallreduce");
  }
  MPI_Type_free(&matrix);
  MPI_Op_free(&product);
}

void duplicates_in_flight(MPI_Comm c) {
  constexpr int n = 5;
  MPI_Comm made[n];
  MPI_Request requests[n];
  Ints a(3, rank);
  Ints b(3);
  MPI_Request first = MPI_REQUEST_NULL;
  code("iallreduce", MPI_Iallreduce(a, b, 3, MPI_INT, MPI_SUM, c, &first));
  for (int i = 0; i < n; ++i) code("idup", MPI_Comm_idup(c, &made[i], &requests[i]));
  code("waitall", MPI_Waitall(n, requests, MPI_STATUSES_IGNORE));
  code("wait", wait(&first));
  for (MPI_Comm& each : made) {
    code("allreduce", MPI_Allreduce(a, b, 3, MPI_INT, MPI_SUM, each));
    b.show("allreduce");
    MPI_Comm_free(&each);
  }
}

void sub_communicators(MPI_Comm c) {
  MPI_Comm part;
  MPI_Comm none;
  MPI_Comm shared;
  MPI_Comm_split(c, rank % 2, -rank, &part);
  MPI_Comm_split(c, rank == 0 ? MPI_UNDEFINED : 1, 0, &none);
  MPI_Comm_split_type(c, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared);
  Ints a(33, rank);
  Ints b(33);
  Ints g(33 * nranks);
  for (MPI_Comm each : {part, none, shared, MPI_COMM_SELF}) {
    if (each == MPI_COMM_NULL) continue;
    code("allreduce", MPI_Allreduce(a, b, 33, MPI_INT, MPI_SUM, each));
    b.show("allreduce");
    code("allgather", MPI_Allgather(a, 33, MPI_INT, g, 33, MPI_INT, each));
    g.show("allgather");
    code("scan", MPI_Scan(a, b, 33, MPI_INT, MPI_SUM, each));
    b.show("scan");
    code("alltoall", MPI_Alltoall(g, 1, MPI_INT, b, 1, MPI_INT, each));
    b.show("alltoall");
  }
  MPI_Comm_free(&part);
  if (none != MPI_COMM_NULL) MPI_Comm_free(&none);
  MPI_Comm_free(&shared);
}

void between_groups(MPI_Comm c) {
  if (nranks < 2) return;
  MPI_Comm half;
  MPI_Comm inter;
  MPI_Comm merged;
  const bool low = rank == 0;
  MPI_Comm_split(c, low, rank, &half);
  MPI_Intercomm_create(half, 0, c, low ? 1 : 0, 9, &inter);
  const int others = low ? nranks - 1 : 1;
  Ints a(40, rank + 1);
  Ints b(40);
  Ints g(40 * nranks);
  code("allreduce", MPI_Allreduce(a, b, 40, MPI_INT, MPI_SUM, inter));
  b.show("allreduce");
  code("allgather", MPI_Allgather(a, 40, MPI_INT, g, 40, MPI_INT, inter));
  g.show("allgather");
  Ints s(40 * others, rank);
  code("alltoall", MPI_Alltoall(s, 40, MPI_INT, g, 40, MPI_INT, inter));
  g.show("alltoall");
  code("bcast", MPI_Bcast(a, 40, MPI_INT, low ? MPI_ROOT : 0, inter));
  a.show("bcast");
  code("reduce", low ? MPI_Reduce(nullptr, b, 40, MPI_INT, MPI_SUM, MPI_ROOT, inter)
                     : MPI_Reduce(a, nullptr, 40, MPI_INT, MPI_SUM, 0, inter));
  b.show("reduce");
  code("barrier", MPI_Barrier(inter));
  MPI_Intercomm_merge(inter, low, &merged);
  code("allreduce merged", MPI_Allreduce(a, b, 40, MPI_INT, MPI_SUM, merged));
  b.show("merged");
  MPI_Comm_free(&merged);
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
}

// What the base refuses; every rank passes the same.
void refused(MPI_Comm c) {
  Ints a(8 * nranks, 1);
  Ints b(8 * nranks, 2);
  std::vector<int> n(static_cast<size_t>(nranks), 2);
  std::vector<int> bad(static_cast<size_t>(nranks), -2);
  std::vector<int> d(static_cast<size_t>(nranks), 0);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  code("bcast count", MPI_Bcast(a, -1, MPI_INT, 0, c));
  code("bcast root", MPI_Bcast(a, 1, MPI_INT, nranks, c));
  code("bcast root below", MPI_Bcast(a, 1, MPI_INT, -1, c));
  code("bcast type", MPI_Bcast(a, 1, MPI_DATATYPE_NULL, 0, c));
  code("bcast null", MPI_Bcast(a, 1, MPI_INT, 0, MPI_COMM_NULL));
  code("barrier null", MPI_Barrier(MPI_COMM_NULL));
  code("ibarrier null", MPI_Ibarrier(MPI_COMM_NULL, &request));
  code("reduce op", MPI_Reduce(a, b, 1, MPI_INT, MPI_OP_NULL, 0, c));
  code("reduce root", MPI_Reduce(a, b, 1, MPI_INT, MPI_SUM, 99, c));
  code("reduce type", MPI_Reduce(a, b, 1, MPI_FLOAT, MPI_BOR, 0, c));
  code("allreduce replace", MPI_Allreduce(a, b, 1, MPI_INT, MPI_REPLACE, c));
  code("allreduce maxloc", MPI_Allreduce(a, b, 1, MPI_INT, MPI_MAXLOC, c));
  code("allreduce pair", MPI_Allreduce(a, b, 1, MPI_2INT, MPI_SUM, c));
  code("allreduce byte", MPI_Allreduce(a, b, 1, MPI_BYTE, MPI_SUM, c));
  code("allreduce packed", MPI_Allreduce(a, b, 1, MPI_PACKED, MPI_BOR, c));
  code("allreduce char", MPI_Allreduce(a, b, 1, MPI_CHAR, MPI_SUM, c));
  code("allreduce count", MPI_Allreduce(a, b, -1, MPI_INT, MPI_SUM, c));
  code("allgather count", MPI_Allgather(a, -1, MPI_INT, b, 1, MPI_INT, c));
  code("allgather receives", MPI_Allgather(a, 1, MPI_INT, b, -1, MPI_INT, c));
  code("allgather type", MPI_Allgather(a, 1, MPI_DATATYPE_NULL, b, 1, MPI_INT, c));
  code("alltoallv counts",
       MPI_Alltoallv(a, bad.data(), d.data(), MPI_INT, b, n.data(), d.data(), MPI_INT, c));
  code("reduce_scatter counts", MPI_Reduce_scatter(a, b, bad.data(), MPI_INT, MPI_SUM, c));
  code("block count", MPI_Reduce_scatter_block(a, b, -1, MPI_INT, MPI_SUM, c));
  code("scan count", MPI_Scan(a, b, -1, MPI_INT, MPI_SUM, c));
  code("scan op", MPI_Scan(a, b, 1, MPI_INT, MPI_OP_NULL, c));
  code("exscan type", MPI_Exscan(a, b, 1, MPI_DATATYPE_NULL, MPI_SUM, c));
  code("iallreduce op", MPI_Iallreduce(a, b, 1, MPI_FLOAT, MPI_BAND, c, &request));
  code("iallgather count", MPI_Iallgather(a, 1, MPI_INT, b, -1, MPI_INT, c, &request));
  code("gather in place",
       MPI_Gather(MPI_IN_PLACE, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, rank, MPI_COMM_SELF));
  MPI_Datatype raw;
  MPI_Type_contiguous(2, MPI_INT, &raw);
  code("uncommitted", MPI_Allgather(a, 1, raw, b, 2, MPI_INT, c));
  MPI_Type_free(&raw);
  // After all that the communicator is as good as before.
  Ints e(8, rank);
  Ints f(8);
  code("allreduce", MPI_Allreduce(e, f, 8, MPI_INT, MPI_SUM, c));
  f.show("allreduce");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

// Ranks that come late, look by MPI_Test, and talk to each other meanwhile.
void late_ranks(MPI_Comm c) {
  for (int late = 0; late < nranks; ++late) {
    Ints a(5000, rank);
    Ints b(5000);
    if (rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(a, b, 5000, MPI_INT, MPI_SUM, c, &request);
    int token = rank;
    int got = -1;
    MPI_Sendrecv(&token, 1, MPI_INT, (rank + 1) % nranks, 1, &got, 1, MPI_INT,
                 (rank + nranks - 1) % nranks, 1, c, MPI_STATUS_IGNORE);
    int flag = 0;
    while (flag == 0) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    say("  %d\n", got);
    b.show("iallreduce");
  }
}

void callbacks(MPI_Comm c) {
  // An attribute whose copy function calls collectives; an error handler that does.
  static int copies;
  copies = 0;
  int key = MPI_KEYVAL_INVALID;
  MPI_Comm_create_keyval(
      [](MPI_Comm old, int, void*, void* in, void* out, int* flag) {
        int one = 1;
        int sum = 0;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, old);
        copies += sum;
        *static_cast<void**>(out) = in;
        *flag = 1;
        return MPI_SUCCESS;
      },
      [](MPI_Comm, int, void*, void*) { return MPI_SUCCESS; }, &key, nullptr);
  int value = 3;
  MPI_Comm dup;
  MPI_Comm_set_attr(c, key, &value);
  Ints a(4, rank);
  Ints b(4);
  code("allreduce", MPI_Allreduce(a, b, 4, MPI_INT, MPI_SUM, c));
  code("dup", MPI_Comm_dup(c, &dup));
  code("allreduce", MPI_Allreduce(a, b, 4, MPI_INT, MPI_SUM, dup));
  b.show("allreduce");
  say("  copies %d\n", copies);
  MPI_Comm_free(&dup);
  MPI_Comm_delete_attr(c, key);
  MPI_Comm_free_keyval(&key);
}

void persistent_calls(MPI_Comm c) {
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define INIT(name) MPI_##name##_init
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define INIT(name) MPIX_##name##_init
#endif
#ifdef INIT
  for (const int n : {0, 1, 7, 4096}) {
    Ints a(n + 1, rank);
    Ints b(n + 1);
    Ints g((n + 1) * nranks);
    MPI_Request requests[3];
    code("init", INIT(Allreduce)(a, b, n, MPI_INT, MPI_SUM, c, MPI_INFO_NULL, &requests[0]));
    code("init", INIT(Bcast)(a, n, MPI_INT, 0, c, MPI_INFO_NULL, &requests[1]));
    code("init", INIT(Allgather)(a, n, MPI_INT, g, n, MPI_INT, c, MPI_INFO_NULL, &requests[2]));
    for (int round = 0; round < 4; ++round) {
      a.set(rank + 100 * round);
      // In an order of its own on each rank.
      const bool forward = rank % 2 == 0;
      for (const int i : {forward ? 0 : 2, forward ? 2 : 0}) code("start", MPI_Start(&requests[i]));
#ifdef MPICH_VERSION  // 5.0 does not end a wait for an inactive one among others
      for (const int i : {0, 2}) code("wait", wait(&requests[i]));
#else
      code("waitall", MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
#endif
      b.show("allreduce");
      g.show("allgather");
      code("start", MPI_Startall(1, &requests[1]));
      code("wait", wait(&requests[1]));
      a.show("bcast");
    }
    for (MPI_Request& request : requests) code("free", MPI_Request_free(&request));
  }
#else
  (void)c;
#endif
}

void threads_each_with_its_own(MPI_Comm c) {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (level < MPI_THREAD_MULTIPLE) return;
  constexpr int n = 3;
  MPI_Comm comms[n];
  std::vector<std::unique_ptr<Ints>> in;
  std::vector<std::unique_ptr<Ints>> out;
  for (int i = 0; i < n; ++i) {
    MPI_Comm_dup(c, &comms[i]);
    in.push_back(std::make_unique<Ints>(500, rank + i));
    out.push_back(std::make_unique<Ints>(500 * nranks));
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) {
    const int which = rank % 2 == 0 ? i : n - 1 - i;
    threads.emplace_back([&, which] {
      const auto at = static_cast<size_t>(which);
      for (int round = 0; round < 30; ++round) {
        MPI_Allreduce(*in[at], *out[at], 500, MPI_INT, MPI_SUM, comms[which]);
        MPI_Allgather(*in[at], 100, MPI_INT, *out[at], 100, MPI_INT, comms[which]);
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Iallreduce(*in[at], *out[at], 500, MPI_INT, MPI_SUM, comms[which], &request);
        wait(&request);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < n; ++i) {
    out[static_cast<size_t>(i)]->show("thread");
    MPI_Comm_free(&comms[i]);
  }
}

// Signals that arrive five thousand times a second of work, as with a sampling profiler.
void sampled(MPI_Comm c) {
  static volatile int samples;
  struct sigaction action = {};
  struct sigaction before = {};
  action.sa_handler = [](int) { samples = samples + 1; };
  sigaction(SIGPROF, &action, &before);
  const itimerval often = {{0, 200}, {0, 200}};
  const itimerval never = {};
  setitimer(ITIMER_PROF, &often, nullptr);
  Ints a(3000, rank);
  Ints b(3000);
  Ints g(3000 * nranks);
  for (int i = 0; i < 50; ++i) {
    MPI_Allreduce(a, b, 3000, MPI_INT, MPI_SUM, c);
    MPI_Allgather(a, 3000, MPI_INT, g, 3000, MPI_INT, c);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(a, b, 3000, MPI_INT, MPI_SUM, c, &request);
    wait(&request);
  }
  setitimer(ITIMER_PROF, &never, nullptr);
  sigaction(SIGPROF, &before, nullptr);
  b.show("allreduce");
  g.show("allgather");
}

void children(MPI_Comm c) {
  Ints a(200, rank);
  Ints b(200);
  for (int i = 0; i < 3; ++i) {
    code("allreduce", MPI_Allreduce(a, b, 200, MPI_INT, MPI_SUM, c));
    b.show("allreduce");
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(a, b, 200, MPI_INT, MPI_SUM, c, &request);
    const pid_t child = fork();
    if (child == 0) _exit(i);
    int status = -1;
    waitpid(child, &status, 0);
    say("  child %d, shell %d\n", WEXITSTATUS(status), std::system("exit 3") >> 8);
    wait(&request);
    b.show("iallreduce");
  }
}

struct Case {
  const char* name;
  void (*run)(MPI_Comm);
  bool errors = false;  // of the base, which some builds do not look for
  bool load = false;    // of several threads in MPI, or of signals
};
const Case cases[] = {
    {"ignored arguments in place", ignored_arguments_in_place},
    {"reduce of one pointer", reduce_of_one_pointer},
    {"equal buffers", equal_buffers, true},
    {"zero counts", zero_counts},
    {"exscan of the first", exscan_of_the_first},
    {"other descriptions", other_descriptions},
    {"strange types", strange_types},
    {"absolute addresses", absolute_addresses},
    {"pending and blocking", pending_and_blocking},
    {"completion calls", completion_calls},
    {"freed before wait", freed_before_wait},
    {"orders and user's operations", orders_and_users_operations},
    {"duplicates in flight", duplicates_in_flight},
    {"sub-communicators", sub_communicators},
    {"between groups", between_groups},
    {"refused", refused, true},
    {"late ranks", late_ranks},
    {"callbacks", callbacks},
    {"persistent calls", persistent_calls},
    {"threads, each with its own", threads_each_with_its_own, false, true},
    {"sampled", sampled, false, true},
    {"children", children},
};

}  // namespace

int main(int argc, char** argv) {
  std::string file;
  std::string memory;
  int only = -1;
  bool no_errors = false;
  bool no_load = false;
  unsigned timeout = 120;
  CLI::App app("Odd calls, whose results are compared with tutti and without.");
  app.add_option("--results", file, "Where to write; the rank is put behind it.")->required();
  app.add_option("--memory", memory, "Path of libtutti_emu.so, or cuda.");
  app.add_option("--kind", memory_kind, "host, pinned, managed, device or mixed.");
  app.add_option("--only", only, "Number of the one case.");
  app.add_flag("--no-errors", no_errors, "Leave out what the MPI has to refuse.");
  app.add_flag("--no-load", no_load,
               "Leave out several threads at once, and thousands of signals.");
  app.add_option("--timeout", timeout, "Seconds until the run is a hang.");
  CLI11_PARSE(app, argc, argv);
  alarm(timeout);
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &nranks);
  results = std::fopen((file + "." + std::to_string(rank)).c_str(), "w");
  std::string why;
  if (results == nullptr || !kinds::open_memory(memory, rank, &why)) {
    std::fprintf(stderr, "odd: %s %s\n", file.c_str(), why.c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  for (int i = 0; i < static_cast<int>(std::size(cases)); ++i) {
    if ((only >= 0 && i != only) || (cases[i].errors && no_errors) || (cases[i].load && no_load))
      continue;
    say("%d %s\n", i, cases[i].name);
    MPI_Comm comm = world();
    cases[i].run(comm);
    MPI_Comm_free(&comm);
  }
  std::fclose(results);
  MPI_Finalize();
  return 0;
}
