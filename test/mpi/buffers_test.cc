// Every collective on every kind of memory: random calls with derived types, blocks with gaps and
// zeros, in place, roots, neighbours and intercommunicators, each made below on host copies and once
// as a program makes it, blocking, nonblocking or persistent, on memory of kinds drawn for every rank
// and buffer. All bytes of both
// buffers must agree afterwards, so what lies in gaps and beyond the ends must be as it was.
//
//   mpirun -n 4 [-x LD_PRELOAD=libtutti.so] buffers_test --cases 1000 --memory libtutti_emu.so
//
// With --faults the module of the devices refuses or spoils something on drawn ranks, each case on a
// communicator of its own: every call gives an error or the right result, touches nothing but its buffers,
// and ends; and what comes after the fault is the same on all ranks.
#include <dlfcn.h>
#include <link.h>
#include <mpi.h>
#include <unistd.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "complete.hpp"
#include "kinds.hpp"
#include "knobs.hpp"

namespace {

using kinds::Memory;
using Random = std::mt19937_64;

// Version 14 of clang-format lays this out anew each time.
// clang-format off
#define BUFFERS_FUNCTIONS(F)                                                                      \
  F(Allreduce)                                                                                    \
  F(Iallreduce)                                                                                   \
  F(Reduce) F(Ireduce) F(Bcast) F(Ibcast) F(Allgather) F(Iallgather) F(Allgatherv) F(Iallgatherv) \
      F(Gather) F(Igather) F(Gatherv) F(Igatherv) F(Scatter) F(Iscatter) F(Scatterv) F(Iscatterv) \
          F(Reduce_scatter) F(Ireduce_scatter) F(Reduce_scatter_block) F(Ireduce_scatter_block)   \
              F(Alltoall) F(Ialltoall) F(Alltoallv) F(Ialltoallv) F(Alltoallw) F(Ialltoallw)      \
                  F(Scan) F(Iscan) F(Exscan) F(Iexscan) F(Neighbor_allgather)                     \
                      F(Ineighbor_allgather) F(Neighbor_allgatherv) F(Ineighbor_allgatherv)       \
                          F(Neighbor_alltoall) F(Ineighbor_alltoall) F(Neighbor_alltoallv)        \
                              F(Ineighbor_alltoallv) F(Neighbor_alltoallw) F(Ineighbor_alltoallw)
// clang-format on

struct Functions {
#define BUFFERS_FIELD(name) decltype(&MPI_##name) name = nullptr;
  BUFFERS_FUNCTIONS(BUFFERS_FIELD)
#undef BUFFERS_FIELD
};

Functions ours() {
  Functions f;
#define BUFFERS_LINKED(name) f.name = &MPI_##name;
  BUFFERS_FUNCTIONS(BUFFERS_LINKED)
#undef BUFFERS_LINKED
  return f;
}

// A lookup in the MPI library itself does not see what is preloaded.
Functions below() {
  void* base = nullptr;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        const char* slash = std::strrchr(info->dlpi_name, '/');
        const std::string file = slash != nullptr ? slash + 1 : info->dlpi_name;
        if (file.rfind("libmpi.so", 0) != 0 && file.rfind("libmpich.so", 0) != 0) return 0;
        void* handle = dlopen(info->dlpi_name, RTLD_NOLOAD | RTLD_NOW);
        if (handle == nullptr || dlsym(handle, "PMPI_Allreduce") == nullptr) return 0;
        *static_cast<void**>(out) = handle;
        return 1;
      },
      &base);
  Functions f;
  if (base == nullptr) {
    std::fprintf(stderr, "buffers_test: cannot find the MPI library among the loaded ones\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
#define BUFFERS_BELOW(name) \
  f.name = reinterpret_cast<decltype(&MPI_##name)>(dlsym(base, "PMPI_" #name));
  BUFFERS_FUNCTIONS(BUFFERS_BELOW)
#undef BUFFERS_BELOW
  return f;
}

// ---- Types: all carry `unit` ints, laid out differently.

struct Type {
  std::string name;
  MPI_Datatype handle = MPI_DATATYPE_NULL;
  // Elements interleave: no more than so many may stand in one buffer. 0: any number.
  int most = 0;
};

Type commit(const char* name, MPI_Datatype handle, int most = 0) {
  MPI_Type_commit(&handle);
  return {name, handle, most};
}

constexpr int columns = 48;

std::vector<Type> make_types(int unit) {
  std::vector<Type> types;
  MPI_Datatype made;
  MPI_Datatype inner;
  MPI_Type_contiguous(unit, MPI_INT, &made);
  types.push_back(commit("contiguous", made));
  MPI_Type_vector(unit, 1, 3, MPI_INT, &made);
  types.push_back(commit("vector", made));
  MPI_Type_vector(unit, 1, columns, MPI_INT, &inner);
  MPI_Type_create_resized(inner, 0, sizeof(int), &made);
  MPI_Type_free(&inner);
  types.push_back(commit("column", made, columns));
  MPI_Type_contiguous(unit, MPI_INT, &inner);
  MPI_Type_create_resized(inner, -8, static_cast<MPI_Aint>(sizeof(int)) * unit + 20, &made);
  MPI_Type_free(&inner);
  types.push_back(commit("resized", made));
  std::vector<int> lengths(static_cast<size_t>(unit), 1);
  std::vector<int> displs;
  for (int i = 0; i < unit; ++i) displs.push_back(2 * ((i + 1) % unit) + 1);
  MPI_Type_indexed(unit, lengths.data(), displs.data(), MPI_INT, &made);
  types.push_back(commit("indexed", made));
  std::vector<MPI_Aint> bytes;
  for (int i = 0; i < unit; ++i) bytes.push_back(-12 * i);
  MPI_Type_create_hindexed(unit, lengths.data(), bytes.data(), MPI_INT, &made);
  types.push_back(commit("backward hindexed", made));
  MPI_Type_create_hvector(unit, 1, 7, MPI_INT, &made);
  types.push_back(commit("misaligned hvector", made));
  const int sizes[2] = {unit + 1, 4};
  const int parts[2] = {unit, 1};
  const int starts[2] = {1, 2};
  MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &made);
  types.push_back(commit("subarray", made));
  if (unit > 1) {
    const int two[2] = {1, unit - 1};
    const MPI_Aint at[2] = {4, 16};
    const MPI_Datatype members[2] = {MPI_INT, MPI_INT};
    MPI_Type_create_struct(2, two, at, members, &made);
    types.push_back(commit("struct", made));
    const int first[1] = {0};
    MPI_Type_create_indexed_block(1, unit - 1, first, MPI_INT, &inner);
    const MPI_Aint next[2] = {8, 8 + 8 * (unit - 1)};
    const int one[2] = {1, 1};
    const MPI_Datatype nested[2] = {inner, MPI_INT};
    MPI_Type_create_struct(2, one, next, nested, &made);
    MPI_Type_free(&inner);
    types.push_back(commit("nested", made));
  }
  if (unit == 1) types.push_back({"int", MPI_INT, 0});
  return types;
}

// ---- One buffer argument.

struct Side {
  std::vector<int> counts;  // elements of each block
  std::vector<int> displs;  // in extents, or in bytes where `types` are several
  std::vector<MPI_Aint> byte_displs;
  std::vector<MPI_Datatype> types;
  MPI_Datatype type = MPI_INT;
  std::string name = "int";
  bool exists = true;
  // Lowest byte and the one behind the highest, from the buffer's address.
  MPI_Aint lowest = 0;
  MPI_Aint end = 0;

  int count() const { return counts.empty() ? 0 : counts[0]; }
  void cover(int count, MPI_Aint at, MPI_Datatype of) {
    if (count == 0) return;
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    MPI_Aint true_lower = 0;
    MPI_Aint true_extent = 0;
    MPI_Type_get_extent(of, &lower, &extent);
    MPI_Type_get_true_extent(of, &true_lower, &true_extent);
    lowest = std::min(lowest, at + true_lower);
    end = std::max(end, at + true_lower + true_extent + extent * (count - 1));
  }
};

enum class Spread { run, blocks, bytes };

// Blocks of those counts: one behind the other in rank order (run), or in random order with gaps.
Side draw_side(Random& random, const std::vector<Type>& types, const std::vector<int>& counts,
               Spread spread) {
  Side side;
  side.counts = counts;
  const int all = std::accumulate(counts.begin(), counts.end(), 0);
  const auto pick = [&](int elements) -> const Type& {
    for (;;) {
      const Type& type = types[random() % types.size()];
      if (type.most == 0 || elements <= type.most) return type;
    }
  };
  const bool bytes = spread == Spread::bytes;
  const int slack = static_cast<int>(counts.size()) * 2;
  const Type& one = pick(bytes ? columns + 1 : spread == Spread::blocks ? all + slack : all);
  side.type = one.handle;
  side.name = bytes ? "types" : one.name;
  std::vector<size_t> order(counts.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (spread != Spread::run) std::shuffle(order.begin(), order.end(), random);
  side.displs.assign(counts.size(), 0);
  side.byte_displs.assign(counts.size(), 0);
  side.types.assign(counts.size(), one.handle);
  MPI_Aint at = 0;
  for (size_t i : order) {
    if (bytes) side.types[i] = pick(columns + 1).handle;
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    MPI_Type_get_extent(side.types[i], &lower, &extent);
    if (bytes) {
      Side alone;
      alone.cover(counts[i], 0, side.types[i]);
      at += -alone.lowest + static_cast<MPI_Aint>(random() % 9);
      side.displs[i] = static_cast<int>(at);
      side.cover(counts[i], at, side.types[i]);
      at += alone.end;
    } else {
      if (spread == Spread::blocks) at += static_cast<MPI_Aint>(random() % 3);
      side.displs[i] = static_cast<int>(at);
      side.cover(counts[i], at * extent, side.types[i]);
      at += counts[i];
    }
    side.byte_displs[i] = side.displs[i];
  }
  return side;
}

// A buffer of one side: random bytes all over, canaries included.
constexpr MPI_Aint canaries = 64;
std::vector<char> random_bytes(Random& random, const Side& side) {
  std::vector<char> bytes(static_cast<size_t>(side.end - side.lowest + 2 * canaries));
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

struct Pair {
  Memory send;
  Memory recv;
  kinds::Kind send_kind;
  kinds::Kind recv_kind;
  Pair(kinds::Kind of_send, kinds::Kind of_recv, const std::vector<char>& s,
       const std::vector<char>& r)
      : send(of_send, s), recv(of_recv, r), send_kind(of_send), recv_kind(of_recv) {}
};

// ---- The collectives.

struct Args {
  const void* send;
  void* recv;
  const Side* s;
  const Side* r;
  MPI_Op op;
  int root;
  MPI_Comm comm;
};

using Blocking = int (*)(const Functions&, const Args&);
using Nonblocking = int (*)(const Functions&, const Args&, MPI_Request*);
using Persistent = int (*)(const Args&, MPI_Request*);
enum class Shape { all, rooted, neighbours };
enum class Counts { one, same, own, pairs };  // how many elements of each block

struct Collective {
  const char* name;
  Shape shape;
  bool reduces;
  Counts counts;
  Spread send_spread;
  Spread recv_spread;
  Blocking blocking;
  Nonblocking nonblocking;
  Persistent persistent;  // null where this MPI has none
};

// MPI 4's form, or the extension of that kind, or none. MPICH 4.0 alone does them wrong on host memory: it
// waits for an inactive one for ever, takes none in MPI_Testall, crashes now and then.
#if defined(MPICH_VERSION)
#define BUFFERS_INIT(NAME, ...) nullptr
#elif MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define BUFFERS_INIT(NAME, ...)                                    \
  [](const Args& a, MPI_Request* request) {                        \
    return MPI_##NAME##_init(__VA_ARGS__, MPI_INFO_NULL, request); \
  }
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define BUFFERS_INIT(NAME, ...)                                     \
  [](const Args& a, MPI_Request* request) {                         \
    return MPIX_##NAME##_init(__VA_ARGS__, MPI_INFO_NULL, request); \
  }
#else
#define BUFFERS_INIT(NAME, ...) nullptr
#endif

#define BUFFERS_ROW(NAME, INAME, shape, reduces, counts, send, recv, ...)                   \
  {                                                                                         \
#NAME, Shape::shape, reduces, Counts::counts, Spread::send, Spread::recv,                 \
        [](const Functions& f, const Args& a) { return f.NAME(__VA_ARGS__); },                \
        [](const Functions& f, const Args& a, MPI_Request* request) {                         \
          return f.INAME(__VA_ARGS__, request);                                               \
        },                                                                                    \
        BUFFERS_INIT(NAME, __VA_ARGS__) \
  }

const Collective collectives[] = {
    BUFFERS_ROW(Allreduce, Iallreduce, all, true, one, run, run, a.send, a.recv, a.r->count(),
                a.r->type, a.op, a.comm),
    BUFFERS_ROW(Scan, Iscan, all, true, one, run, run, a.send, a.recv, a.r->count(), a.r->type,
                a.op, a.comm),
    BUFFERS_ROW(Exscan, Iexscan, all, true, one, run, run, a.send, a.recv, a.r->count(), a.r->type,
                a.op, a.comm),
    BUFFERS_ROW(Reduce, Ireduce, rooted, true, one, run, run, a.send, a.recv, a.s->count(),
                a.s->type, a.op, a.root, a.comm),
    BUFFERS_ROW(Reduce_scatter, Ireduce_scatter, all, true, own, run, run, a.send, a.recv,
                a.s->counts.data(), a.s->type, a.op, a.comm),
    BUFFERS_ROW(Reduce_scatter_block, Ireduce_scatter_block, all, true, same, run, run, a.send,
                a.recv, a.s->count(), a.s->type, a.op, a.comm),
    BUFFERS_ROW(Bcast, Ibcast, rooted, false, one, run, run, a.recv, a.r->count(), a.r->type,
                a.root, a.comm),
    BUFFERS_ROW(Gather, Igather, rooted, false, same, run, run, a.send, a.s->count(), a.s->type,
                a.recv, a.r->count(), a.r->type, a.root, a.comm),
    BUFFERS_ROW(Gatherv, Igatherv, rooted, false, own, run, blocks, a.send, a.s->count(), a.s->type,
                a.recv, a.r->counts.data(), a.r->displs.data(), a.r->type, a.root, a.comm),
    BUFFERS_ROW(Scatter, Iscatter, rooted, false, same, run, run, a.send, a.s->count(), a.s->type,
                a.recv, a.r->count(), a.r->type, a.root, a.comm),
    BUFFERS_ROW(Scatterv, Iscatterv, rooted, false, own, blocks, run, a.send, a.s->counts.data(),
                a.s->displs.data(), a.s->type, a.recv, a.r->count(), a.r->type, a.root, a.comm),
    BUFFERS_ROW(Allgather, Iallgather, all, false, same, run, run, a.send, a.s->count(), a.s->type,
                a.recv, a.r->count(), a.r->type, a.comm),
    BUFFERS_ROW(Allgatherv, Iallgatherv, all, false, own, run, blocks, a.send, a.s->count(),
                a.s->type, a.recv, a.r->counts.data(), a.r->displs.data(), a.r->type, a.comm),
    BUFFERS_ROW(Alltoall, Ialltoall, all, false, same, run, run, a.send, a.s->count(), a.s->type,
                a.recv, a.r->count(), a.r->type, a.comm),
    BUFFERS_ROW(Alltoallv, Ialltoallv, all, false, pairs, blocks, blocks, a.send,
                a.s->counts.data(), a.s->displs.data(), a.s->type, a.recv, a.r->counts.data(),
                a.r->displs.data(), a.r->type, a.comm),
    BUFFERS_ROW(Alltoallw, Ialltoallw, all, false, pairs, bytes, bytes, a.send, a.s->counts.data(),
                a.s->displs.data(), a.s->types.data(), a.recv, a.r->counts.data(),
                a.r->displs.data(), a.r->types.data(), a.comm),
    BUFFERS_ROW(Neighbor_allgather, Ineighbor_allgather, neighbours, false, same, run, run, a.send,
                a.s->count(), a.s->type, a.recv, a.r->count(), a.r->type, a.comm),
    BUFFERS_ROW(Neighbor_allgatherv, Ineighbor_allgatherv, neighbours, false, own, run, blocks,
                a.send, a.s->count(), a.s->type, a.recv, a.r->counts.data(), a.r->displs.data(),
                a.r->type, a.comm),
    BUFFERS_ROW(Neighbor_alltoall, Ineighbor_alltoall, neighbours, false, same, run, run, a.send,
                a.s->count(), a.s->type, a.recv, a.r->count(), a.r->type, a.comm),
    BUFFERS_ROW(Neighbor_alltoallv, Ineighbor_alltoallv, neighbours, false, pairs, blocks, blocks,
                a.send, a.s->counts.data(), a.s->displs.data(), a.s->type, a.recv,
                a.r->counts.data(), a.r->displs.data(), a.r->type, a.comm),
    BUFFERS_ROW(Neighbor_alltoallw, Ineighbor_alltoallw, neighbours, false, pairs, bytes, bytes,
                a.send, a.s->counts.data(), a.s->byte_displs.data(), a.s->types.data(), a.recv,
                a.r->counts.data(), a.r->byte_displs.data(), a.r->types.data(), a.comm),
};

bool is(const Collective& row, const char* name) {
  return std::strcmp(row.name, name) == 0;
}

// ---- Communicators.

struct Comm {
  const char* name = "";
  MPI_Comm handle = MPI_COMM_NULL;
  int nranks = 1;  // of the local group
  int npeers = 1;  // of the other group of an intercommunicator
  int rank = 0;
  bool inter = false;
  std::vector<int> sources = {};  // of a topology
  std::vector<int> targets = {};
};

Comm make_comm(const char* name, MPI_Comm handle) {
  Comm comm{name, handle};
  int inter = 0;
  MPI_Comm_test_inter(handle, &inter);
  MPI_Comm_size(handle, &comm.nranks);
  MPI_Comm_rank(handle, &comm.rank);
  comm.npeers = comm.nranks;
  comm.inter = inter != 0;
  if (comm.inter) MPI_Comm_remote_size(handle, &comm.npeers);
  MPI_Comm_set_errhandler(handle, MPI_ERRORS_RETURN);
  return comm;
}

std::vector<Comm> make_comms() {
  std::vector<Comm> comms;
  int rank = 0;
  int nranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &nranks);
  comms.push_back(make_comm("world", MPI_COMM_WORLD));
  MPI_Comm made;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &made);
  comms.push_back(make_comm("reversed", made));
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  comms.push_back(make_comm("parity split", half));
  if (nranks > 1) {
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 7, &made);
    comms.push_back(make_comm("intercomm", made));
  }
  // A grid with and without ends, and a graph in which degrees differ: to all ranks below and to
  // itself.
  int dims[2] = {0, 0};
  const int periods[2] = {0, 1};
  MPI_Dims_create(nranks, 2, dims);
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &made);
  Comm grid = make_comm("grid", made);
  for (int d = 0; d < 2; ++d) {
    int before = 0;
    int after = 0;
    MPI_Cart_shift(made, d, 1, &before, &after);
    for (int peer : {before, after}) grid.sources.push_back(peer);
  }
  grid.targets = grid.sources;
  comms.push_back(grid);
  Comm graph{"graph", MPI_COMM_NULL};
  for (int peer = rank; peer < nranks; ++peer) graph.sources.push_back(peer);
  for (int peer = 0; peer <= rank; ++peer) graph.targets.push_back(peer);
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, static_cast<int>(graph.sources.size()),
                                 graph.sources.data(), MPI_UNWEIGHTED,
                                 static_cast<int>(graph.targets.size()), graph.targets.data(),
                                 MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &made);
  Comm named = make_comm("graph", made);
  named.sources = graph.sources;
  named.targets = graph.targets;
  comms.push_back(named);
  return comms;
}

// ---- A case.

struct Options {
  uint64_t cases = 300;
  uint64_t seed = 0;
  uint64_t first = 0;
  std::vector<std::string> kinds = {"host"};
  std::vector<std::string> only;
  std::string memory;
  std::string plant;
  int most = 40;
  unsigned timeout_s = 120;
  bool trace = false;
  bool faults = false;
};

struct World {
  Functions base;
  Functions mine;
  std::vector<Comm> comms;
  std::map<int, std::vector<Type>> types;  // by unit
  std::vector<kinds::Kind> kinds;
  MPI_Op user_sum = MPI_OP_NULL;
  Options options;
  int rank = 0;
  int nranks = 0;
};

enum class Form { blocking, nonblocking, persistent };
constexpr const char* form_names[] = {"blocking", "nonblocking", "persistent"};

// What the shared generator says: equal on all ranks.
struct Case {
  const Collective* row;
  const Comm* comm;
  Form form;
  int completion;  // by which calls it is completed
  int starts;      // of a persistent call; the others are made once
  bool in_place;
  bool user_op;
  bool plain;  // all types without gaps
  int unit;
  int root;       // of the communicator, or of the even half of an intercommunicator
  uint64_t salt;  // of the counts
  int most;
};

// Elements from rank i to rank j, whoever asks.
int elements(const Case& c, int from, int to) {
  uint64_t x = c.salt ^ (static_cast<uint64_t>(from) << 20) ^ (static_cast<uint64_t>(to) << 40);
  x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
  x ^= x >> 32;
  return x % 4 == 0 ? 0 : static_cast<int>((x >> 8) % static_cast<uint64_t>(c.most));
}

// Counts that one rank has for its peers, by the collective's way.
std::vector<int> counts_for(const Case& c, const std::vector<int>& peers, bool sending, int me,
                            bool several) {
  std::vector<int> counts;
  switch (c.row->counts) {
    case Counts::one:
      return {elements(c, 0, 0)};
    case Counts::same:
      counts.assign(several ? peers.size() : 1, elements(c, 0, 0));
      return counts;
    case Counts::own:
      if (!several) return {elements(c, me, 0)};
      for (int peer : peers) counts.push_back(elements(c, std::max(peer, 0), 0));
      return counts;
    case Counts::pairs:
      for (int peer : peers)
        counts.push_back(peer < 0  ? elements(c, me, me)
                         : sending ? elements(c, me, peer)
                                   : elements(c, peer, me));
      return counts;
  }
  return counts;
}

std::vector<int> upto(int n) {
  std::vector<int> all;
  for (int i = 0; i < n; ++i) all.push_back(i);
  return all;
}

struct Drawn {
  Side send;
  Side recv;
  bool in_place = false;
  int root = 0;  // as given to MPI
  bool one_buffer = false;
  size_t compared = SIZE_MAX;  // bytes of recv from its address that MPI defines
};

// Whether one end of the call has several blocks.
bool many(const Collective& row, bool sending) {
  const std::string name = row.name;
  if (name.find("lltoall") != std::string::npos) return true;
  if (name.find("educe_scatter") != std::string::npos || name == "Scatter" || name == "Scatterv")
    return sending;
  if (name.find("ather") != std::string::npos) return !sending;
  return false;
}

// Every rank's own part of the case: layouts are drawn by `local`.
Drawn draw_sides(const World& world, const Case& c, Random& local) {
  const Comm& comm = *c.comm;
  const Collective& row = *c.row;
  Drawn d;
  const bool even = world.rank % 2 == 0;
  bool root = false;
  bool leaf = true;
  if (row.shape == Shape::rooted) {
    d.root = c.root % comm.nranks;
    root = comm.rank == d.root;
    if (comm.inter) {
      // The even half has the root.
      const int half = even ? comm.nranks : comm.npeers;
      const int at = c.root % half;
      root = even && comm.rank == at;
      leaf = !even;
      d.root = !even ? at : root ? MPI_ROOT : MPI_PROC_NULL;
    }
  }
  std::vector<int> sources = row.shape == Shape::neighbours ? comm.sources : upto(comm.npeers);
  std::vector<int> targets = row.shape == Shape::neighbours ? comm.targets : upto(comm.npeers);
  std::vector<Type> types = world.types.at(c.unit);
  if (c.plain && !row.reduces) types = {types.front()};
#ifdef OPEN_MPI
  // Its persistent calls from and to a root do not get every layout right.
  if (c.form == Form::persistent && row.shape == Shape::rooted && !row.reduces)
    types = {types.front()};
#endif
  // Predefined operations take predefined types; the program's own takes ints one behind the other.
  if (row.reduces) types = {c.user_op ? types.front() : types.back()};
  std::vector<int> send = counts_for(c, targets, true, comm.rank, many(row, true));
  std::vector<int> recv = counts_for(c, sources, false, comm.rank, many(row, false));
  if (row.reduces && row.counts != Counts::one)
    send = counts_for(c, upto(comm.nranks), true, comm.rank, true);
  d.in_place = c.in_place && !comm.inter && row.shape != Shape::neighbours;
  if (row.shape == Shape::rooted && !root) d.in_place = false;
  if (is(row, "Bcast")) d.in_place = false;
#ifdef MPICH_VERSION
  // MPICH 4.0 crashes in an in-place Reduce of some length whose root is not rank 0.
  if (is(row, "Reduce")) d.in_place = false;
#endif
  if (is(row, "Alltoallv") || is(row, "Alltoallw")) {
    // In place what goes to a rank is as long as what comes from it.
    if (c.in_place && !comm.inter)
      for (size_t i = 0; i < recv.size(); ++i)
        recv[i] = elements(c, std::min(comm.rank, static_cast<int>(i)),
                           std::max(comm.rank, static_cast<int>(i)));
  }
  const bool scatters = is(row, "Scatter") || is(row, "Scatterv");
  d.send = draw_side(local, types, send, row.send_spread);
  d.recv = draw_side(local, types, recv, row.recv_spread);
  if (row.reduces) d.recv.type = d.send.type;
  if (row.reduces && d.in_place && row.counts != Counts::one) {
    // The whole vector stands in recv; MPI defines only its first block afterwards.
    d.recv = d.send;
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    MPI_Type_get_extent(d.send.type, &lower, &extent);
    d.compared = static_cast<size_t>(send[row.counts == Counts::same ? 0 : comm.rank] * extent);
  }
  if (row.shape == Shape::rooted) {
    d.send.exists = scatters ? root : leaf;
    d.recv.exists = scatters ? leaf : root;
    if (is(row, "Bcast")) d.recv.exists = root || leaf;
  }
  return d;
}

std::string describe(const Case& c, const Drawn& d, kinds::Kind send, kinds::Kind recv) {
  char line[300];
  std::snprintf(line, sizeof line, "%s %s on %s, root %d%s, unit %d, %s %s to %s %s, at most %d",
                form_names[static_cast<int>(c.form)], c.row->name, c.comm->name, d.root,
                d.in_place ? ", in place" : "", c.unit, kinds::name(send), d.send.name.c_str(),
                kinds::name(recv), d.recv.name.c_str(), c.most);
  return line;
}

int run_persistent(const Case& c, const Args& a) {
  MPI_Request request = MPI_REQUEST_NULL;
  int rc = c.row->persistent(a, &request);
  if (rc != MPI_SUCCESS) return rc;
  // An inactive request completes at once and touches nothing.
  rc = MPI_Wait(&request, MPI_STATUS_IGNORE);
  for (int i = 0; i < c.starts && rc == MPI_SUCCESS; ++i) {
    rc = (c.completion + i) % 2 == 0 ? MPI_Start(&request) : MPI_Startall(1, &request);
    if (rc == MPI_SUCCESS) rc = complete(&request, c.completion);
  }
  const int freed = MPI_Request_free(&request);
  return rc == MPI_SUCCESS ? freed : rc;
}

int perform(const World& world, const Functions& f, const Case& c, const Drawn& d, const Pair& pair,
            Form form) {
  Args a{};
  // Addresses that nobody may look at where there is no buffer.
  a.send =
      d.send.exists ? pair.send.data() + canaries - d.send.lowest : reinterpret_cast<char*>(16);
  a.recv =
      d.recv.exists ? pair.recv.data() + canaries - d.recv.lowest : reinterpret_cast<char*>(32);
#ifdef MPICH_VERSION
  // MPICH 4.0 writes to the receive buffer of a Reduce on ranks where it means nothing.
  static char unused[1 << 16];
  if (is(*c.row, "Reduce") && !d.recv.exists) a.recv = unused + sizeof unused / 2;
#endif
  // Programs pass the pointer that the root uses, which may be of a device.
  if (!d.recv.exists && pair.recv_kind != kinds::Kind::host) a.recv = pair.recv.data();
  if (!d.send.exists && pair.send_kind != kinds::Kind::host) a.send = pair.send.data();
  const bool scatters = is(*c.row, "Scatter") || is(*c.row, "Scatterv");
  if (d.in_place && scatters)
    a.recv = MPI_IN_PLACE;
  else if (d.in_place)
    a.send = MPI_IN_PLACE;
  a.s = &d.send;
  a.r = &d.recv;
  a.op = c.user_op ? world.user_sum : MPI_SUM;
  a.root = d.root;
  a.comm = c.comm->handle;
  if (form == Form::persistent) return run_persistent(c, a);
  if (form == Form::nonblocking) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc = c.row->nonblocking(f, a, &request);
    return rc == MPI_SUCCESS ? complete(&request, c.completion) : rc;
  }
  int rc = MPI_SUCCESS;
  for (int i = 0; i < c.starts && rc == MPI_SUCCESS; ++i) rc = c.row->blocking(f, a);
  return rc;
}

std::string compare(const char* what, const std::vector<char>& expected,
                    const std::vector<char>& got, const Side& side, size_t compared) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto at = static_cast<MPI_Aint>(i) - canaries + side.lowest;
    // Elements may lie before the address; of a call that failed they are anything too.
    const bool inside = at >= (compared == 0 ? side.lowest : 0) && at < side.end;
    if (inside && static_cast<size_t>(at) >= compared) continue;
    if (expected[i] != got[i])
      return std::string(what) + " buffer differs at byte " + std::to_string(at);
  }
  return "";
}

constexpr const char* fault_knobs[] = {"refuse_launch", "refuse_alloc", "refuse_export",
                                       "refuse_import", "fault_launch"};

void disarm() {
  for (const char* knob : fault_knobs) set_knob(knob, 0);
}

// What the faults did to this rank's calls.
struct Tally {
  uint64_t errors = 0;
  uint64_t results = 0;
};

// A fault of one kind on one rank or on all, met by the k-th use of what fails, in a few calls of one kind;
// the last of them without faults.
struct Fault {
  const char* knob;
  long k;
  bool here;  // on this rank
  int calls;
  int armed_at;  // before which of the calls
  bool uniform;  // every buffer is device memory
};

Fault draw_fault(const World& world, Random& shared, bool early) {
  Fault f{};
  // A process allocates once, for its first group.
  f.knob = early ? "refuse_alloc" : fault_knobs[shared() % std::size(fault_knobs)];
  f.k = static_cast<long>(early ? 1 : 1 + shared() % 3);
  const bool everywhere = shared() % 4 == 0;
  f.here =
      everywhere || static_cast<int>(shared() % static_cast<uint64_t>(world.nranks)) == world.rank;
  f.calls = 2 + static_cast<int>(shared() % 3);
  f.armed_at = static_cast<int>(shared() % 2);
  f.uniform = shared() % 3 != 0;
  return f;
}

// The calls of a case on a new communicator.
std::string run_faulty_case(const World& world, const Case& drawn, const Fault& planned,
                            Random& local, Tally& tally) {
  Comm comm = *drawn.comm;
  MPI_Comm_dup(drawn.comm->handle, &comm.handle);
  Case c = drawn;
  c.comm = &comm;
  const auto& [knob, k, here, calls, armed_at, uniform] = planned;
  const Drawn d = draw_sides(world, c, local);
  std::string first_fault;
  for (int i = 0; i < calls; ++i) {
    std::string fault;
    const auto kind = [&] {
      return uniform ? kinds::Kind::device : world.kinds[local() % world.kinds.size()];
    };
    const kinds::Kind send_kind = kind();
    const kinds::Kind recv_kind = kind();
    const std::vector<char> send = random_bytes(local, d.send);
    const std::vector<char> recv = random_bytes(local, d.recv);
    const Pair host(kinds::Kind::host, kinds::Kind::host, send, recv);
    const Pair ours(send_kind, recv_kind, send, recv);
    const bool last = i + 1 == calls;
    const std::string what = describe(c, d, send_kind, recv_kind) + ", call " + std::to_string(i) +
                             " of " + std::to_string(calls) + ", " + knob + " " +
                             std::to_string(k) + (here ? " here" : "");
    if (world.options.trace) {
      std::printf("rank %d: %s\n", world.rank, what.c_str());
      std::fflush(stdout);
    }
    const int base_rc = perform(world, world.base, c, d, host,
                                c.form == Form::persistent ? Form::blocking : c.form);
    if (here && i == armed_at && !last) set_knob(knob, k);
    if (last) disarm();
    const int our_rc = perform(world, world.mine, c, d, ours, c.form);
    // Tests allocate too.
    if (here && std::strcmp(knob, "refuse_alloc") == 0) disarm();
    ++(our_rc == MPI_SUCCESS ? tally.results : tally.errors);
    if (base_rc != MPI_SUCCESS) fault = what + ": below " + std::to_string(base_rc);
    // After an error what the call writes is anything.
    const size_t compared = our_rc == MPI_SUCCESS ? d.compared : 0;
    if (fault.empty())
      fault = compare("receive", host.recv.read(), ours.recv.read(), d.recv, compared);
    if (fault.empty())
      fault = compare("send", host.send.read(), ours.send.read(), d.send, SIZE_MAX);
    if (!fault.empty()) fault = what + ": returns " + std::to_string(our_rc) + ", " + fault;
    if (last && !comm.inter) {
      const int bad = our_rc != MPI_SUCCESS ? 1 : 0;
      int sum = 0;
      world.base.Allreduce(&bad, &sum, 1, MPI_INT, MPI_SUM, drawn.comm->handle);
      if (fault.empty() && sum != 0 && sum != comm.nranks)
        fault = what + ": ends with an error on " + std::to_string(sum) + " ranks of " +
                std::to_string(comm.nranks);
    }
    if (first_fault.empty()) first_fault = fault;
  }
  disarm();
  MPI_Comm_free(&comm.handle);
  return first_fault;
}

std::string run_case(const World& world, const Case& c, Random& local, bool plant) {
  const Drawn d = draw_sides(world, c, local);
  const std::vector<char> send = random_bytes(local, d.send);
  const std::vector<char> recv = random_bytes(local, d.recv);
  const kinds::Kind send_kind = world.kinds[local() % world.kinds.size()];
  const kinds::Kind recv_kind = world.kinds[local() % world.kinds.size()];
  const Pair host(kinds::Kind::host, kinds::Kind::host, send, recv);
  const Pair ours(send_kind, recv_kind, send, recv);
  const std::string what = describe(c, d, send_kind, recv_kind);
  if (world.options.trace) {
    std::printf("rank %d: %s\n", world.rank, what.c_str());
    std::fflush(stdout);
  }
  // Below a persistent call is as many blocking ones.
  const int base_rc =
      perform(world, world.base, c, d, host, c.form == Form::persistent ? Form::blocking : c.form);
  const int our_rc = perform(world, world.mine, c, d, ours, c.form);
  if (base_rc != MPI_SUCCESS || our_rc != MPI_SUCCESS)
    return what + ": returns " + std::to_string(our_rc) + ", below " + std::to_string(base_rc);
  std::vector<char> got = ours.recv.read();
  if (plant) got[got.size() - 1] ^= 1;
  std::string fault = compare("receive", host.recv.read(), got, d.recv, d.compared);
  if (fault.empty()) fault = compare("send", host.send.read(), ours.send.read(), d.send, SIZE_MAX);
  return fault.empty() ? "" : what + ": " + fault;
}

void add_ints(void* in, void* inout, int* count, MPI_Datatype* type) {
  int size = 0;
  MPI_Type_size(*type, &size);
  const auto n = static_cast<size_t>(*count) * static_cast<size_t>(size) / sizeof(unsigned);
  for (size_t i = 0; i < n; ++i)
    static_cast<unsigned*>(inout)[i] += static_cast<const unsigned*>(in)[i];
}

#ifdef MPICH_VERSION
// What MPICH 4.0 alone does wrong on host memory: Neighbor_alltoallw on a graph (hangs, wrong data), Allgatherv
// of one rank (ignores the displacement), Ibcast between groups from a root other than the first.
bool mpich_fails(const Case& c) {
  if (is(*c.row, "Neighbor_alltoallw")) return c.comm->name == std::string("graph");
  if (is(*c.row, "Allgatherv")) return c.comm->nranks == 1;
  return is(*c.row, "Bcast") && c.form != Form::blocking && c.comm->inter;
}
#endif

// Whether kernels do it on device memory.
bool by_kernels(const Case& c) {
  if (c.comm->inter) return false;
  for (const char* name : {"Allreduce", "Reduce", "Bcast", "Gather", "Scatter", "Allgather",
                           "Alltoall", "Reduce_scatter_block"})
    if (is(*c.row, name)) return true;
  return false;
}

Case draw(const World& world, Random& shared) {
  Case c{};
  c.form = static_cast<Form>(shared() % 3);
  for (;;) {
    c.row = &collectives[shared() % std::size(collectives)];
    c.comm = &world.comms[shared() % world.comms.size()];
    const auto& only = world.options.only;
    if (!only.empty() && std::find(only.begin(), only.end(), c.row->name) == only.end()) continue;
    if (c.row->shape == Shape::neighbours && c.comm->targets.empty()) continue;
    if (world.options.faults && !by_kernels(c) && shared() % 8 != 0) continue;
#ifdef MPICH_VERSION
    if (mpich_fails(c)) continue;
#endif
#ifdef OPEN_MPI
    // Open MPI 4.1 counts the types of an ialltoallw by neighbours where there is a topology, and
    // corrupts its heap in an alltoallw of one rank with two gapped types (half of three is one).
    if (is(*c.row, "Alltoallw") && (!c.comm->sources.empty() || world.nranks <= 3)) continue;
#endif
    // Scans are not defined between groups. Reduce-scatters are, of vectors of one length.
    const bool same = is(*c.row, "Scan") || is(*c.row, "Exscan") || c.row->counts == Counts::own ||
                      c.row->counts == Counts::same;
    if (c.comm->inter && c.row->reduces && same) continue;
    break;
  }
  if (c.row->persistent == nullptr && c.form == Form::persistent) c.form = Form::nonblocking;
#ifdef OPEN_MPI
  // Open MPI 4.1 confuses the two messages of a neighbour that is one in both directions.
  // Between groups its persistent calls are wrong now and then.
  if (c.form == Form::persistent && (c.comm->inter || (c.row->shape == Shape::neighbours &&
                                                       std::strcmp(c.comm->name, "grid") == 0)))
    c.form = Form::blocking;
#endif
  c.completion = static_cast<int>(shared() % completions);
  c.in_place = shared() % 3 == 0;
#ifdef OPEN_MPI
  // Open MPI 4 and 5 refuse it for the nonblocking forms, or do it wrong.
  if (c.form != Form::blocking && std::strncmp(c.row->name, "Alltoall", 8) == 0) c.in_place = false;
#endif
  // Where MPI leaves a part of the input undefined, a second start has no input.
  const bool again = !(c.in_place && c.row->reduces && c.row->counts != Counts::one);
  c.starts = c.form == Form::persistent && again ? 1 + static_cast<int>(shared() % 3) : 1;
  c.user_op = shared() % 4 == 0;
  c.plain = world.options.faults && shared() % 4 != 0;
  c.unit = 1 + static_cast<int>(shared() % 3);
  if (c.row->reduces) c.unit = c.user_op ? c.unit : 1;
  c.root = static_cast<int>(shared() % 64);
  c.salt = shared();
  const int most[] = {2, 5, world.options.most, 40 * world.options.most};
  c.most = most[shared() % 4];
  return c;
}

// An allreduce whose first launch fails on every rank must end with an error. Among the drawn cases there may
// be none: many a fault meets a case whose call does not use what fails.
std::string run_failing_case(const World& world, Random& shared, Random& local, Tally& tally) {
  Case c{};
  c.row = std::find_if(std::begin(collectives), std::end(collectives),
                       [](const Collective& row) { return is(row, "Allreduce"); });
  c.comm = &world.comms[0];
  c.form = Form::blocking;
  c.starts = 1;
  c.plain = true;
  c.unit = 1;
  c.most = world.options.most;
  do c.salt = shared();
  while (elements(c, 0, 0) == 0);
  return run_faulty_case(world, c, {"refuse_launch", 1, true, 2, 0, true}, local, tally);
}

bool any_rank(const World& world, bool mine) {
  int in = mine ? 1 : 0;
  int out = 0;
  world.base.Allreduce(&in, &out, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return out != 0;
}

// MPI_Reduce_local: this rank alone, on elements one behind the other.
std::string reduce_local_case(const World& world, const std::vector<Type>& types, Random& random) {
  const bool user_op = random() % 2 == 0;
  const MPI_Datatype type = user_op ? types[random() % types.size()].handle : MPI_INT;
  const int count = static_cast<int>(random() % 200);
  int size = 0;
  MPI_Type_size(type, &size);
  const size_t n = static_cast<size_t>(count) * static_cast<size_t>(size) / sizeof(unsigned);
  std::vector<unsigned> in(n + 4);
  std::vector<unsigned> inout(n + 4);
  for (unsigned& each : in) each = static_cast<unsigned>(random());
  for (unsigned& each : inout) each = static_cast<unsigned>(random());
  std::vector<unsigned> expected = inout;
  for (size_t i = 0; i < n; ++i) expected[i] += in[i];
  const auto chars = [](const std::vector<unsigned>& from) {
    const char* first = reinterpret_cast<const char*>(from.data());
    return std::vector<char>(first, first + from.size() * sizeof(unsigned));
  };
  const kinds::Kind kinds[2] = {world.kinds[random() % world.kinds.size()],
                                world.kinds[random() % world.kinds.size()]};
  const Memory first(kinds[0], chars(in));
  const Memory second(kinds[1], chars(inout));
  const int rc = MPI_Reduce_local(first.data(), second.data(), count, type,
                                  user_op ? world.user_sum : MPI_SUM);
  if (rc == MPI_SUCCESS && second.read() == chars(expected) && first.read() == chars(in)) return "";
  return std::string("Reduce_local of ") + std::to_string(count) + " elements from " +
         kinds::name(kinds[0]) + " to " + kinds::name(kinds[1]) + (user_op ? ", user's sum" : "") +
         ": wrong, or returns " + std::to_string(rc);
}

bool run_reduce_local(const World& world) {
  std::seed_seq own{world.options.seed, static_cast<uint64_t>(world.rank), uint64_t{17}};
  Random random(own);
  // Without gaps: what the operation does with these is its own affair.
  std::vector<Type> types;
  for (const auto& [unit, all] : world.types) types.push_back(all.front());
  for (int i = 0; i < 50; ++i) {
    const std::string fault = reduce_local_case(world, types, random);
    if (fault.empty()) continue;
    std::printf("rank %d: %s\n", world.rank, fault.c_str());
    return false;
  }
  return true;
}

// Types come and go, and their handles come back as those of others.
void renew_types(World& world, int unit) {
  for (Type& type : world.types[unit])
    if (type.handle != MPI_INT) MPI_Type_free(&type.handle);
  world.types[unit] = make_types(unit);
}

// Those before it refuse the memory of the process's first group.
constexpr uint64_t must_fail_case = 5;

bool run_cases(World& world) {
  const Options& options = world.options;
  Tally tally;
  // Groups that ended with an error keep their lanes.
  if (options.faults) set_knob("small_lanes", 256);
  for (uint64_t i = options.first; i < options.first + options.cases; ++i) {
    std::seed_seq common{options.seed, i};
    std::seed_seq own{options.seed, i, static_cast<uint64_t>(world.rank) + 1};
    Random shared(common);
    Random local(own);
    const Case c = draw(world, shared);
    if (local() % 4 == 0) renew_types(world, c.unit);
    const bool plant = options.plant == "result" && i + 1 == options.first + options.cases;
    std::string fault;
    if (!options.faults)
      fault = run_case(world, c, local, plant);
    else if (i == must_fail_case)
      fault = run_failing_case(world, shared, local, tally);
    else
      fault =
          run_faulty_case(world, c, draw_fault(world, shared, i < must_fail_case), local, tally);
    if (!fault.empty()) std::printf("rank %d: %s\n", world.rank, fault.c_str());
    std::fflush(stdout);
    if (!any_rank(world, !fault.empty())) continue;
    if (world.rank == 0)
      std::printf("case %llu failed; replay it with --seed %llu --first %llu --cases 1\n",
                  static_cast<unsigned long long>(i), static_cast<unsigned long long>(options.seed),
                  static_cast<unsigned long long>(i));
    return false;
  }
  if (!options.faults) return true;
  uint64_t errors = 0;
  world.base.Allreduce(&tally.errors, &errors, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  if (world.rank == 0)
    std::printf("faults: %llu calls ended with an error\n",
                static_cast<unsigned long long>(errors));
  // A test in which nothing fails shows nothing.
  const bool included =
      options.first <= must_fail_case && must_fail_case < options.first + options.cases;
  return errors != 0 || !included || world.nranks == 1;
}

void report_paths(const World& world) {
  using CountPath = unsigned long long (*)(const char*, int);
  const auto path = reinterpret_cast<CountPath>(dlsym(RTLD_DEFAULT, "tutti_count_path"));
  if (world.rank != 0) return;
  if (path == nullptr)
    std::printf("tutti is not loaded: control run\n");
  else
    std::printf("tutti: %llu native, %llu bounced, %llu below\n", path(nullptr, 0),
                path(nullptr, 1), path(nullptr, 2));
  if (module_symbol("tutti_emu_get", "tutti_cuda_get") != nullptr)
    std::printf("gapped buffers packed or unpacked on the device: %ld\n", count_of("packed"));
}

int run(World& world) {
  Options& options = world.options;
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world.nranks);
  if (options.seed == 0) options.seed = std::random_device()() | 1;
  world.base = below();
  world.mine = ours();
  world.base.Bcast(&options.seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  std::string why;
  if (!kinds::open_memory(options.memory, world.rank, &why)) {
    std::fprintf(stderr, "buffers_test: %s\n", why.c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  for (const std::string& kind : options.kinds) world.kinds.push_back(kinds::find_kind(kind));
  for (int unit = 1; unit <= 3; ++unit) world.types[unit] = make_types(unit);
  MPI_Op_create(add_ints, 1, &world.user_sum);
  world.comms = make_comms();
  const bool good_alone = !any_rank(world, !run_reduce_local(world));
  const bool good = run_cases(world) && good_alone;
  report_paths(world);
  if (world.rank == 0)
    std::printf("buffers_test: seed %llu, %llu cases: %s\n",
                static_cast<unsigned long long>(options.seed),
                static_cast<unsigned long long>(options.cases), good ? "passed" : "FAILED");
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  World world;
  Options& options = world.options;
  CLI::App app("Collectives on buffers of every shape and kind, with and without tutti, compared.");
  app.add_option("--cases", options.cases, "How many cases.")->capture_default_str();
  app.add_option("--seed", options.seed, "Seed; 0 draws one.");
  app.add_option("--first", options.first, "Number of the first case.");
  app.add_option("--only", options.only, "Which collectives, as Alltoallw.")->delimiter(',');
  app.add_option("--kinds", options.kinds, "Kinds of memory, drawn for each buffer of each rank.")
      ->delimiter(',');
  app.add_option("--memory", options.memory,
                 "Where kinds but host come from: path of libtutti_emu.so, or cuda.");
  app.add_option("--timeout", options.timeout_s, "Seconds until the run is a hang.");
  app.add_flag("--faults", options.faults, "Let the module of the devices fail.");
  app.add_flag("--trace", options.trace, "Print each case before it is run.");
  app.add_option("--plant", options.plant, "Spoil the last case, which must then fail: result.");
  CLI11_PARSE(app, argc, argv);
  alarm(options.timeout_s);
  MPI_Init(nullptr, nullptr);
  const int rc = run(world);
  std::fflush(stdout);
  MPI_Finalize();
  return rc;
}
