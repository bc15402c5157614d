// Twin test: random collective calls, each made once below (the MPI's own PMPI function, reached
// past tutti, on host copies) and once as a program makes it; results, error classes and
// surroundings of the buffers must agree.
//
//   mpirun -n 4 [-x LD_PRELOAD=libtutti.so] twin_test --cases 2000 --seed 7
//
// On integer-valued data with exact partial results the bytes must be equal. On real data
// |x - ref| <= 2(P-1) u sum|x_i| against higher precision, and all ranks must hold the same bits.
// The first failing case ends the run and is printed with the options that replay it alone.
#include <dlfcn.h>
#include <link.h>
#include <mpi.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "complete.hpp"
#include "core/types.hpp"
#include "kinds.hpp"

namespace {

using kinds::Memory;
using tutti::Dtype;
using tutti::Op;
using Random = std::mt19937_64;

// ---- The two ways to call. ----

// The functions under test and what this program itself needs from below. A further collective adds
// its two functions here and a row to `collectives`.
// Version 14 of clang-format lays this out anew each time.
// clang-format off
#define TWIN_FUNCTIONS(F)                                                       \
  F(Allreduce) F(Iallreduce) F(Reduce) F(Ireduce) F(Bcast) F(Ibcast)            \
  F(Allgather) F(Iallgather) F(Allgatherv) F(Iallgatherv)                       \
  F(Gather) F(Igather) F(Gatherv) F(Igatherv)                                   \
  F(Scatter) F(Iscatter) F(Scatterv) F(Iscatterv)                               \
  F(Alltoall) F(Ialltoall) F(Alltoallv) F(Ialltoallv)                           \
  F(Alltoallw) F(Ialltoallw) F(Reduce_scatter) F(Ireduce_scatter)               \
  F(Reduce_scatter_block) F(Ireduce_scatter_block)                              \
  F(Scan) F(Iscan) F(Exscan) F(Iexscan) F(Barrier) F(Ibarrier)
// clang-format on

struct Functions {
#define TWIN_FIELD(name) decltype(&MPI_##name) name = nullptr;
  TWIN_FUNCTIONS(TWIN_FIELD)
#undef TWIN_FIELD
};

// As linked: tutti's where it is preloaded.
Functions ours() {
  Functions f;
#define TWIN_LINKED(name) f.name = &MPI_##name;
  TWIN_FUNCTIONS(TWIN_LINKED)
#undef TWIN_LINKED
  return f;
}

// The MPI library by file name: a lookup in it, unlike the global one, does not see what is
// preloaded.
void* open_base() {
  void* found = nullptr;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        const char* slash = std::strrchr(info->dlpi_name, '/');
        const std::string base = slash != nullptr ? slash + 1 : info->dlpi_name;
        if (base.rfind("libmpi.so", 0) != 0 && base.rfind("libmpich.so", 0) != 0) return 0;
        void* handle = dlopen(info->dlpi_name, RTLD_NOLOAD | RTLD_NOW);
        if (handle == nullptr || dlsym(handle, "PMPI_Allreduce") == nullptr) return 0;
        *static_cast<void**>(out) = handle;
        return 1;
      },
      &found);
  return found;
}

Functions below(void* base) {
  Functions f;
#define TWIN_BELOW(name) \
  f.name = reinterpret_cast<decltype(&MPI_##name)>(dlsym(base, "PMPI_" #name));
  TWIN_FUNCTIONS(TWIN_BELOW)
#undef TWIN_BELOW
  return f;
}

// ---- Types and operations. ----

struct Type {
  const char* name;
  MPI_Datatype handle;
  Dtype dtype;                // of the members that carry data
  int members = 1;            // of a derived type
  size_t stride = 0;          // bytes between members; 0: the dtype's extent
  bool non_negative = false;  // with the sign bit clear
  size_t extent() const {
    return stride != 0 ? members * stride : members * tutti::info(dtype).extent;
  }
};

struct Operation {
  const char* name;
  MPI_Op handle;
  Op op;
};

Dtype signed_of(size_t bytes) {
  return bytes == 1 ? Dtype::i8 : bytes == 2 ? Dtype::i16 : bytes == 4 ? Dtype::i32 : Dtype::i64;
}
Dtype unsigned_of(size_t bytes) {
  return bytes == 1 ? Dtype::u8 : bytes == 2 ? Dtype::u16 : bytes == 4 ? Dtype::u32 : Dtype::u64;
}

std::vector<Type> predefined_types() {
  std::vector<Type> types = {
      {"MPI_SIGNED_CHAR", MPI_SIGNED_CHAR, Dtype::i8},
      {"MPI_UNSIGNED_CHAR", MPI_UNSIGNED_CHAR, Dtype::u8},
      {"MPI_SHORT", MPI_SHORT, Dtype::i16},
      {"MPI_UNSIGNED_SHORT", MPI_UNSIGNED_SHORT, Dtype::u16},
      {"MPI_INT", MPI_INT, Dtype::i32},
      {"MPI_UNSIGNED", MPI_UNSIGNED, Dtype::u32},
      {"MPI_LONG", MPI_LONG, signed_of(sizeof(long))},
      // Open MPI 4.1 compares these two with the wrong signedness: tested where both agree; the
      // rest is in legal/extremes.c.
      {"MPI_UNSIGNED_LONG", MPI_UNSIGNED_LONG, unsigned_of(sizeof(long)), 1, 0, true},
      {"MPI_OFFSET", MPI_OFFSET, unsigned_of(sizeof(MPI_Offset)), 1, 0, true},
      {"MPI_LONG_LONG", MPI_LONG_LONG, Dtype::i64},
      {"MPI_UNSIGNED_LONG_LONG", MPI_UNSIGNED_LONG_LONG, Dtype::u64},
      {"MPI_INT8_T", MPI_INT8_T, Dtype::i8},
      {"MPI_INT16_T", MPI_INT16_T, Dtype::i16},
      {"MPI_INT32_T", MPI_INT32_T, Dtype::i32},
      {"MPI_INT64_T", MPI_INT64_T, Dtype::i64},
      {"MPI_UINT8_T", MPI_UINT8_T, Dtype::u8},
      {"MPI_UINT16_T", MPI_UINT16_T, Dtype::u16},
      {"MPI_UINT32_T", MPI_UINT32_T, Dtype::u32},
      {"MPI_UINT64_T", MPI_UINT64_T, Dtype::u64},
      {"MPI_AINT", MPI_AINT, signed_of(sizeof(MPI_Aint))},
      {"MPI_COUNT", MPI_COUNT, signed_of(sizeof(MPI_Count))},
      {"MPI_FLOAT", MPI_FLOAT, Dtype::f32},
      {"MPI_DOUBLE", MPI_DOUBLE, Dtype::f64},
      {"MPI_LONG_DOUBLE", MPI_LONG_DOUBLE, Dtype::f80},
      {"MPI_C_FLOAT_COMPLEX", MPI_C_FLOAT_COMPLEX, Dtype::c32},
      {"MPI_C_DOUBLE_COMPLEX", MPI_C_DOUBLE_COMPLEX, Dtype::c64},
      {"MPI_C_BOOL", MPI_C_BOOL, Dtype::l8},
      {"MPI_BYTE", MPI_BYTE, Dtype::byte},
      {"MPI_FLOAT_INT", MPI_FLOAT_INT, Dtype::f32_i32},
      {"MPI_DOUBLE_INT", MPI_DOUBLE_INT, Dtype::f64_i32},
      {"MPI_LONG_INT", MPI_LONG_INT, Dtype::i64_i32},
      {"MPI_SHORT_INT", MPI_SHORT_INT, Dtype::i16_i32},
      {"MPI_2INT", MPI_2INT, Dtype::i32_i32},
      {"MPI_LONG_DOUBLE_INT", MPI_LONG_DOUBLE_INT, Dtype::f80_i32},
  };
#ifdef MPICH_VERSION
  // MPICH 4.0 compares every unsigned type as signed in MIN and MAX; likewise.
  for (Type& type : types)
    if (tutti::info(type.dtype).cls == tutti::DtypeClass::uint) type.non_negative = true;
#endif
  // Without a Fortran compiler these handles are null.
  const Type fortran[] = {
      {"MPI_INTEGER", MPI_INTEGER, Dtype::i32},
      {"MPI_REAL", MPI_REAL, Dtype::f32},
      {"MPI_DOUBLE_PRECISION", MPI_DOUBLE_PRECISION, Dtype::f64},
      {"MPI_LOGICAL", MPI_LOGICAL, Dtype::l32},
      {"MPI_COMPLEX", MPI_COMPLEX, Dtype::c32},
      {"MPI_DOUBLE_COMPLEX", MPI_DOUBLE_COMPLEX, Dtype::c64},
      {"MPI_2REAL", MPI_2REAL, Dtype::f32_f32},
      {"MPI_2DOUBLE_PRECISION", MPI_2DOUBLE_PRECISION, Dtype::f64_f64},
      {"MPI_2INTEGER", MPI_2INTEGER, Dtype::i32_i32},
  };
  for (const Type& type : fortran)
    if (type.handle != MPI_DATATYPE_NULL) types.push_back(type);
  return types;
}

const Operation operations[] = {
    {"MPI_SUM", MPI_SUM, Op::sum},          {"MPI_PROD", MPI_PROD, Op::prod},
    {"MPI_MIN", MPI_MIN, Op::min},          {"MPI_MAX", MPI_MAX, Op::max},
    {"MPI_LAND", MPI_LAND, Op::land},       {"MPI_LOR", MPI_LOR, Op::lor},
    {"MPI_LXOR", MPI_LXOR, Op::lxor},       {"MPI_BAND", MPI_BAND, Op::band},
    {"MPI_BOR", MPI_BOR, Op::bor},          {"MPI_BXOR", MPI_BXOR, Op::bxor},
    {"MPI_MINLOC", MPI_MINLOC, Op::minloc}, {"MPI_MAXLOC", MPI_MAXLOC, Op::maxloc},
};

// inout = in * inout of 2x2 matrices over the integers modulo 2^64: exact, and it does not commute.
void multiply_matrices(void* in, void* inout, int* count, MPI_Datatype*) {
  const uint64_t* a = static_cast<const uint64_t*>(in);
  uint64_t* b = static_cast<uint64_t*>(inout);
  for (int i = 0; i < *count; ++i, a += 4, b += 4) {
    const uint64_t c[4] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3],
                           a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]};
    std::copy(c, c + 4, b);
  }
}

// On ints that stand 8 bytes apart.
void add_gapped(void* in, void* inout, int* count, MPI_Datatype*) {
  const int* a = static_cast<const int*>(in);
  int* b = static_cast<int*>(inout);
  for (int i = 0; i < *count; ++i) b[2 * i] += a[2 * i];
}

// ---- Data. ----

struct Field {
  size_t at;
  Dtype dtype;
  size_t bytes() const { return dtype == Dtype::f80 ? 10 : tutti::info(dtype).bytes; }
};

std::vector<Field> fields(Dtype dtype) {
  switch (dtype) {
    case Dtype::c32:
      return {{0, Dtype::f32}, {4, Dtype::f32}};
    case Dtype::c64:
      return {{0, Dtype::f64}, {8, Dtype::f64}};
    case Dtype::f32_i32:
      return {{0, Dtype::f32}, {4, Dtype::i32}};
    case Dtype::f64_i32:
      return {{0, Dtype::f64}, {8, Dtype::i32}};
    case Dtype::f80_i32:
      return {{0, Dtype::f80}, {16, Dtype::i32}};
    case Dtype::i16_i32:
      return {{0, Dtype::i16}, {4, Dtype::i32}};
    case Dtype::i32_i32:
      return {{0, Dtype::i32}, {4, Dtype::i32}};
    case Dtype::i64_i32:
      return {{0, Dtype::i64}, {8, Dtype::i32}};
    case Dtype::f32_f32:
      return {{0, Dtype::f32}, {4, Dtype::f32}};
    case Dtype::f64_f64:
      return {{0, Dtype::f64}, {8, Dtype::f64}};
    default:
      return {{0, dtype}};
  }
}

std::vector<Field> fields(const Type& type) {
  const size_t stride = type.stride != 0 ? type.stride : tutti::info(type.dtype).extent;
  std::vector<Field> all;
  for (int m = 0; m < type.members; ++m)
    for (const Field& field : fields(type.dtype))
      all.push_back({m * stride + field.at, field.dtype});
  return all;
}

template <class T>
void put(char* to, T value) {
  std::memcpy(to, &value, std::is_same_v<T, long double> ? 10 : sizeof value);
}

// exact: integer values whose partial results every floating type holds; real: rounding matters.
enum class Values { exact, real };

// Partial sums and products stay in range: on overflow MPIs differ (Open MPI 4.1 saturates 8 and 16
// bits). Elsewhere wild bits or small numbers, so that ties occur and logicals meet zeros.
void fill_integer(Random& random, const Field& field, Op op, char* to) {
  const uint64_t wild = random();
  const bool is_signed = tutti::info(field.dtype).cls == tutti::DtypeClass::sint;
  const int bits = static_cast<int>(8 * field.bytes());
  uint64_t value = random() % 2 != 0 ? wild : wild % 5 - 2;
  if (op == Op::sum) {
    value = bits > 16 ? (wild >> (64 - bits)) >> 8 : wild % 8;
    if (is_signed && wild % 2 != 0) value = -value;
  } else if (op == Op::prod) {
    value = wild % 16 == 0 ? 2 : 1;
    if (is_signed && wild / 16 % 2 != 0) value = -value;
  }
  std::memcpy(to, &value, field.bytes());
}

void fill_field(Random& random, const Field& field, Op op, Values values, char* to) {
  double real = static_cast<double>(random() % 17) - 8;
  if (op == Op::prod) real = (random() % 2 != 0 ? 1 : -1) * (random() % 4 == 0 ? 2.0 : 1.0);
  if (values == Values::real) {
    real = std::ldexp(static_cast<double>(random() >> 11) + 1, -52) * (random() % 2 != 0 ? 1 : -1);
    if (op != Op::prod) real = std::ldexp(real, static_cast<int>(random() % 21) - 10);
  }
  switch (field.dtype) {
    case Dtype::f32:
      return put<float>(to, static_cast<float>(real));
    case Dtype::f64:
      return put<double>(to, real);
    case Dtype::f80:
      return put<long double>(to, real);
    case Dtype::l8:
      return put<uint8_t>(to, random() % 2);  // another bool has no meaning in C
    case Dtype::l32:
      return put<uint32_t>(to, random() % 2);
    default:
      return fill_integer(random, field, op, to);
  }
}

void fill(Random& random, const Type& type, Op op, Values values, std::vector<char>& to) {
  const std::vector<Field> all = fields(type);
  for (size_t at = 0; at + type.extent() <= to.size(); at += type.extent())
    for (const Field& field : all) {
      char* here = to.data() + at + field.at;
      fill_field(random, field, op, values, here);
      if (type.non_negative) here[field.bytes() - 1] &= 0x7f;  // little endian
    }
}

// ---- Collectives: one row each. ----

// Blocks of several lengths, in multiples of `count`; the blocks lie in reverse order.
struct Blocks {
  std::vector<int> counts;
  std::vector<int> displs;
  std::vector<int> bytes;  // displacements of alltoallw
  std::vector<MPI_Datatype> types;
};

struct Call {
  const void* send;
  void* recv;
  int count;
  MPI_Datatype type;
  MPI_Op op;
  int root;
  MPI_Comm comm;
  const Blocks* each = nullptr;   // of every rank: allgatherv, gatherv, scatterv, reduce_scatter
  const Blocks* pairs = nullptr;  // to and from every rank: alltoallv and alltoallw
};

// Multiples of the block of a rank, and of what two ranks exchange.
int weight(int rank) {
  return rank % 3;
}
int pair_weight(int one, int other) {
  return (one + other) % 3;
}
template <class Weight>
Blocks make_blocks(int nranks, int count, MPI_Datatype type, int extent, Weight weight_of) {
  Blocks blocks;
  const auto n = static_cast<size_t>(nranks);
  blocks.displs.resize(n);
  blocks.bytes.resize(n);
  blocks.types.assign(n, type);
  for (int r = 0; r < nranks; ++r) blocks.counts.push_back(count * weight_of(r));
  int at = 0;
  for (size_t r = n; r-- > 0; at += blocks.counts[r]) {
    blocks.displs[r] = at;
    blocks.bytes[r] = at * extent;
  }
  return blocks;
}

struct Collective {
  const char* name;
  bool reduces;
  bool full;  // every rank gets the whole reduction: real data can be checked
  bool (*has_in_place)(int rank, int root);
  // Buffer sizes in blocks of `count`; 0 where the rank has no such buffer.
  int (*send_blocks)(int nranks, int rank, int root);
  int (*recv_blocks)(int nranks, int rank, int root);
  int (*blocking)(const Functions& f, const Call& c);
  int (*nonblocking)(const Functions& f, const Call& c, MPI_Request* request);
};

int one_block(int, int, int) {
  return 1;
}
int all_blocks(int nranks, int, int) {
  return nranks;
}
int root_block(int, int rank, int root) {
  return rank == root ? 1 : 0;
}
int no_block(int, int, int) {
  return 0;
}
int own_weight(int, int rank, int) {
  return weight(rank);
}
int all_weights(int nranks, int, int) {
  int sum = 0;
  for (int r = 0; r < nranks; ++r) sum += weight(r);
  return sum;
}
int all_pairs(int nranks, int rank, int) {
  int sum = 0;
  for (int r = 0; r < nranks; ++r) sum += pair_weight(rank, r);
  return sum;
}
int root_blocks(int nranks, int rank, int root) {
  return rank == root ? nranks : 0;
}
int root_weights(int nranks, int rank, int root) {
  return rank == root ? all_weights(nranks, rank, root) : 0;
}
bool everywhere(int, int) {
  return true;
}
bool at_root(int rank, int root) {
  return rank == root;
}
bool nowhere(int, int) {
  return false;
}

const Collective collectives[] = {
    {"allreduce", true, true, everywhere, one_block, one_block,
     [](const Functions& f, const Call& c) {
       return f.Allreduce(c.send, c.recv, c.count, c.type, c.op, c.comm);
     },
     [](const Functions& f, const Call& c, MPI_Request* r) {
       return f.Iallreduce(c.send, c.recv, c.count, c.type, c.op, c.comm, r);
     }},
    {"reduce", true, false, at_root, one_block, root_block,
     [](const Functions& f, const Call& c) {
       return f.Reduce(c.send, c.recv, c.count, c.type, c.op, c.root, c.comm);
     },
     [](const Functions& f, const Call& c, MPI_Request* r) {
       return f.Ireduce(c.send, c.recv, c.count, c.type, c.op, c.root, c.comm, r);
     }},
    // The one buffer of a broadcast is `recv`; the root's holds the data before.
    {"bcast", false, false, at_root, no_block, one_block,
     [](const Functions& f, const Call& c) {
       return f.Bcast(c.recv, c.count, c.type, c.root, c.comm);
     },
     [](const Functions& f, const Call& c, MPI_Request* r) {
       return f.Ibcast(c.recv, c.count, c.type, c.root, c.comm, r);
     }},
    {"allgather", false, false, everywhere, one_block, all_blocks,
     [](const Functions& f, const Call& c) {
       return f.Allgather(c.send, c.count, c.type, c.recv, c.count, c.type, c.comm);
     },
     [](const Functions& f, const Call& c, MPI_Request* r) {
       return f.Iallgather(c.send, c.count, c.type, c.recv, c.count, c.type, c.comm, r);
     }},
    {"alltoall", false, false, everywhere, all_blocks, all_blocks,
     [](const Functions& f, const Call& c) {
       return f.Alltoall(c.send, c.count, c.type, c.recv, c.count, c.type, c.comm);
     },
     [](const Functions& f, const Call& c, MPI_Request* r) {
       return f.Ialltoall(c.send, c.count, c.type, c.recv, c.count, c.type, c.comm, r);
     }},
    {"reduce_scatter_block", true, false, everywhere, all_blocks, one_block,
     [](const Functions& f, const Call& c) {
       return f.Reduce_scatter_block(c.send, c.recv, c.count, c.type, c.op, c.comm);
     },
     [](const Functions& f, const Call& c, MPI_Request* r) {
       return f.Ireduce_scatter_block(c.send, c.recv, c.count, c.type, c.op, c.comm, r);
     }},
    {"scan", true, false, everywhere, one_block, one_block,
     [](const Functions& f, const Call& c) {
       return f.Scan(c.send, c.recv, c.count, c.type, c.op, c.comm);
     },
     [](const Functions& f, const Call& c, MPI_Request* r) {
       return f.Iscan(c.send, c.recv, c.count, c.type, c.op, c.comm, r);
     }},
    {"exscan", true, false, everywhere, one_block, one_block,
     [](const Functions& f, const Call& c) {
       return f.Exscan(c.send, c.recv, c.count, c.type, c.op, c.comm);
     },
     [](const Functions& f, const Call& c, MPI_Request* r) {
       return f.Iexscan(c.send, c.recv, c.count, c.type, c.op, c.comm, r);
     }},
    {"reduce_scatter", true, false, everywhere, all_weights, own_weight,
     [](const Functions& f, const Call& c) {
       return f.Reduce_scatter(c.send, c.recv, c.each->counts.data(), c.type, c.op, c.comm);
     },
     [](const Functions& f, const Call& c, MPI_Request* r) {
       return f.Ireduce_scatter(c.send, c.recv, c.each->counts.data(), c.type, c.op, c.comm, r);
     }},
    {"allgatherv", false, false, everywhere, own_weight, all_weights,
     [](const Functions& f, const Call& c) {
       return f.Allgatherv(c.send, c.count, c.type, c.recv, c.each->counts.data(),
                           c.each->displs.data(), c.type, c.comm);
     },
     [](const Functions& f, const Call& c, MPI_Request* r) {
       return f.Iallgatherv(c.send, c.count, c.type, c.recv, c.each->counts.data(),
                            c.each->displs.data(), c.type, c.comm, r);
     }},
    {"gather", false, false, at_root, one_block, root_blocks,
     [](const Functions& f, const Call& c) {
       return f.Gather(c.send, c.count, c.type, c.recv, c.count, c.type, c.root, c.comm);
     },
     [](const Functions& f, const Call& c, MPI_Request* r) {
       return f.Igather(c.send, c.count, c.type, c.recv, c.count, c.type, c.root, c.comm, r);
     }},
    {"gatherv", false, false, at_root, own_weight, root_weights,
     [](const Functions& f, const Call& c) {
       return f.Gatherv(c.send, c.count, c.type, c.recv, c.each->counts.data(),
                        c.each->displs.data(), c.type, c.root, c.comm);
     },
     [](const Functions& f, const Call& c, MPI_Request* r) {
       return f.Igatherv(c.send, c.count, c.type, c.recv, c.each->counts.data(),
                         c.each->displs.data(), c.type, c.root, c.comm, r);
     }},
    {"scatter", false, false, nowhere, root_blocks, one_block,
     [](const Functions& f, const Call& c) {
       return f.Scatter(c.send, c.count, c.type, c.recv, c.count, c.type, c.root, c.comm);
     },
     [](const Functions& f, const Call& c, MPI_Request* r) {
       return f.Iscatter(c.send, c.count, c.type, c.recv, c.count, c.type, c.root, c.comm, r);
     }},
    {"scatterv", false, false, nowhere, root_weights, own_weight,
     [](const Functions& f, const Call& c) {
       return f.Scatterv(c.send, c.each->counts.data(), c.each->displs.data(), c.type, c.recv,
                         c.count, c.type, c.root, c.comm);
     },
     [](const Functions& f, const Call& c, MPI_Request* r) {
       return f.Iscatterv(c.send, c.each->counts.data(), c.each->displs.data(), c.type, c.recv,
                          c.count, c.type, c.root, c.comm, r);
     }},
    {"alltoallv", false, false, everywhere, all_pairs, all_pairs,
     [](const Functions& f, const Call& c) {
       return f.Alltoallv(c.send, c.pairs->counts.data(), c.pairs->displs.data(), c.type, c.recv,
                          c.pairs->counts.data(), c.pairs->displs.data(), c.type, c.comm);
     },
     [](const Functions& f, const Call& c, MPI_Request* r) {
       return f.Ialltoallv(c.send, c.pairs->counts.data(), c.pairs->displs.data(), c.type, c.recv,
                           c.pairs->counts.data(), c.pairs->displs.data(), c.type, c.comm, r);
     }},
    {"alltoallw", false, false, everywhere, all_pairs, all_pairs,
     [](const Functions& f, const Call& c) {
       return f.Alltoallw(c.send, c.pairs->counts.data(), c.pairs->bytes.data(),
                          c.pairs->types.data(), c.recv, c.pairs->counts.data(),
                          c.pairs->bytes.data(), c.pairs->types.data(), c.comm);
     },
     [](const Functions& f, const Call& c, MPI_Request* r) {
       return f.Ialltoallw(c.send, c.pairs->counts.data(), c.pairs->bytes.data(),
                           c.pairs->types.data(), c.recv, c.pairs->counts.data(),
                           c.pairs->bytes.data(), c.pairs->types.data(), c.comm, r);
     }},
    {"barrier", false, false, nowhere, no_block, no_block,
     [](const Functions& f, const Call& c) { return f.Barrier(c.comm); },
     [](const Functions& f, const Call& c, MPI_Request* r) { return f.Ibarrier(c.comm, r); }},
};

bool is(const Collective& row, const char* name) {
  return std::strcmp(row.name, name) == 0;
}
// In place the whole vector stands in the receive buffer, of which MPI defines the first block after.
bool scatters_vector(const Collective& row) {
  return is(row, "reduce_scatter") || is(row, "reduce_scatter_block");
}
// Its counts and blocks are those of `each`.
bool by_weight(const Collective& row) {
  return is(row, "allgatherv") || is(row, "gatherv") || is(row, "scatterv") ||
         is(row, "reduce_scatter");
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const Collective& row : collectives) names.push_back(row.name);
  return names;
}

// ---- A case. ----

struct Comm {
  const char* name;
  MPI_Comm handle;
};

struct Case {
  const Collective* collective;
  bool nonblocking;
  int completion;  // 0 Wait, 1 Test until done, 2 Waitany, 3 Waitall
  Type type;
  Operation op;
  int count;
  Values values;
  bool in_place;
  const Comm* comm;
  int root;
};

struct Options {
  uint64_t seed = 0;
  uint64_t first = 0;
  uint64_t cases = 500;
  std::vector<std::string> collectives = all_names();
  std::vector<std::string> native;  // movements that tutti must keep
  std::vector<std::string> kinds = {"host"};
  std::string memory;
  size_t max_bytes = 1 << 20;
  int native_at_least = 0;
  unsigned timeout_s = 600;
  std::string plant;
  bool errors = true;
};

struct World {
  Options options;
  Functions mine;
  Functions base;
  std::vector<Type> types;
  std::vector<Type> user_types;
  std::vector<Operation> user_operations;
  std::vector<Comm> comms;
  std::vector<kinds::Kind> kinds;
  int rank = 0;
};

int pick_count(Random& random, size_t extent, size_t max_bytes) {
  constexpr int awkward[] = {0,  0,  1,  1,  2,  3,  4,  5,  7,   8,  9,
                             15, 16, 17, 31, 33, 63, 64, 65, 127, 129};
  if (random() % 2 == 0) return awkward[random() % std::size(awkward)];
  const double most = static_cast<double>(max_bytes / extent + 1);
  const double spread = static_cast<double>(random() >> 11) / 9007199254740992.0;
  return static_cast<int>(std::exp(std::log(most) * spread));
}

// Sizes near the ends of blocks, lines and pages are where algorithms change.
int near_power(Random& random, size_t extent, size_t max_bytes) {
  size_t bytes = size_t{1} << (3 + random() % 18);
  if (bytes > max_bytes) bytes = max_bytes;
  const int64_t count =
      static_cast<int64_t>(bytes / extent) + static_cast<int64_t>(random() % 3) - 1;
  return static_cast<int>(std::max<int64_t>(count, 0));
}

// Equal on all ranks: drawn from seed and number alone.
Case draw(const World& world, Random& random) {
  Case c = {};
  const std::string& wanted =
      world.options.collectives[random() % world.options.collectives.size()];
  c.collective = std::find_if(std::begin(collectives), std::end(collectives),
                              [&](const Collective& row) { return row.name == wanted; });
  c.nonblocking = random() % 2 != 0;
  c.completion = static_cast<int>(random() % 4);
  if (random() % 8 == 0) {
    const size_t which = random() % world.user_types.size();
    c.type = world.user_types[which];
    c.op = world.user_operations[which];
  } else {
    do {
      c.type = world.types[random() % world.types.size()];
      c.op = operations[random() % std::size(operations)];
    } while (c.collective->reduces && !tutti::op_valid(c.op.op, c.type.dtype));
  }
  const size_t extent = c.type.extent();
  c.count = random() % 4 == 0 ? near_power(random, extent, world.options.max_bytes)
                              : pick_count(random, extent, world.options.max_bytes);
  const bool rounds =
      c.type.dtype == Dtype::f32 || c.type.dtype == Dtype::f64 ||
      ((c.type.dtype == Dtype::c32 || c.type.dtype == Dtype::c64) && c.op.op == Op::sum);
  const bool real = random() % 2 != 0;
  c.values = real && rounds && c.collective->full && (c.op.op == Op::sum || c.op.op == Op::prod)
                 ? Values::real
                 : Values::exact;
  c.in_place = random() % 3 == 0;
#ifdef OPEN_MPI
  // Open MPI 4 and 5 refuse it for the nonblocking forms, or do it wrong.
  if (c.nonblocking && std::strncmp(c.collective->name, "alltoall", 8) == 0) c.in_place = false;
#endif
  c.comm = &world.comms[random() % world.comms.size()];
  c.root = static_cast<int>(random() % 64);  // taken modulo the size of the communicator
  return c;
}

// One rank's buffers of a call in some memory: input written, output poisoned, canaries round both.
class Buffers {
 public:
  static constexpr size_t guard = 64;
  static constexpr char canary = 0x5a;
  static constexpr char poison = static_cast<char>(0xdb);

  Buffers(kinds::Kind send_kind, kinds::Kind recv_kind, const std::vector<char>& input,
          size_t recv_bytes, bool in_place, size_t shift)
      : in_place_(in_place),
        shift_(shift),
        recv_bytes_(recv_bytes),
        input_(in_place ? std::vector<char>() : input),
        send_(send_kind, framed(input_)),
        recv_(recv_kind, framed(output(input, recv_bytes, in_place))) {}
  const void* send() const { return in_place_ ? MPI_IN_PLACE : send_.data() + guard + shift_; }
  void* recv() { return recv_.data() + guard + shift_; }
  // Bytes of the output; complains when anything round it, or the input, has changed.
  std::vector<char> result(std::string* fault) const {
    const std::vector<char> all = recv_.read();
    const std::vector<char> out(all.begin() + guard + shift_,
                                all.begin() + guard + shift_ + recv_bytes_);
    if (framed(out) != all) *fault = "canary at the receive buffer overwritten";
    if (send_.read() != framed(input_)) *fault = "send buffer changed";
    return out;
  }
  // For the test of this test.
  void spoil(const std::string& how) {
    std::vector<char> all = recv_.read();
    if (how == "canary") all[guard + shift_ + recv_bytes_] ^= 1;
    if (how == "result" && recv_bytes_ != 0) all[guard + shift_] ^= 1;
    recv_.write(all);
  }

 private:
  std::vector<char> framed(const std::vector<char>& middle) const {
    std::vector<char> all(guard + shift_, canary);
    all.insert(all.end(), middle.begin(), middle.end());
    all.resize(all.size() + guard, canary);
    return all;
  }
  static std::vector<char> output(const std::vector<char>& input, size_t bytes, bool in_place) {
    std::vector<char> out = in_place ? input : std::vector<char>();
    out.resize(bytes, poison);
    return out;
  }

  bool in_place_;
  size_t shift_;
  size_t recv_bytes_;
  std::vector<char> input_;
  Memory send_;
  Memory recv_;
};

int perform(const Functions& f, const Case& c, Call call) {
  if (!c.nonblocking) return c.collective->blocking(f, call);
  MPI_Request request = MPI_REQUEST_NULL;
  const int rc = c.collective->nonblocking(f, call, &request);
  if (rc != MPI_SUCCESS) return rc;
  const int done = complete(&request, c.completion);
  return done == MPI_SUCCESS && request != MPI_REQUEST_NULL ? MPI_ERR_REQUEST : done;
}

int class_of(int rc) {
  int error_class = rc;
  if (rc != MPI_SUCCESS) MPI_Error_class(rc, &error_class);
  return error_class;
}

// Zeros of either sign: which one an exact product of complex numbers gives depends on the order.
bool both_zero(const Field& field, const char* a, const char* b) {
  if (field.dtype == Dtype::f32 || field.dtype == Dtype::f64) {
    for (size_t i = 0; i < field.bytes(); ++i)
      if (((a[i] | b[i]) & (i + 1 == field.bytes() ? 0x7f : 0xff)) != 0) return false;
    return true;
  }
  return false;
}

// First element whose data differ, or -1.
long first_difference(const Type& type, const std::vector<char>& a, const std::vector<char>& b) {
  const std::vector<Field> all = fields(type);
  const bool complex = tutti::info(type.dtype).cls == tutti::DtypeClass::cplx;
  for (size_t at = 0; at + type.extent() <= a.size(); at += type.extent())
    for (const Field& field : all)
      if (std::memcmp(&a[at + field.at], &b[at + field.at], field.bytes()) != 0 &&
          !(complex && both_zero(field, &a[at + field.at], &b[at + field.at])))
        return static_cast<long>(at / type.extent());
  return -1;
}

std::vector<long double> numbers(Dtype dtype, const std::vector<char>& bytes) {
  std::vector<long double> out;
  const bool single = dtype == Dtype::f32 || dtype == Dtype::c32;
  for (size_t at = 0; at < bytes.size(); at += single ? 4 : 8) {
    float f = 0;
    double d = 0;
    std::memcpy(single ? static_cast<void*>(&f) : &d, &bytes[at], single ? 4 : 8);
    out.push_back(single ? f : d);
  }
  return out;
}

// |x - ref| <= 2(P-1) u sum|x_i| (of a product: its size); returns the first element beyond, or -1.
long first_inexact(const World& world, const Case& c, MPI_Comm comm, int nranks,
                   const std::vector<char>& input, const std::vector<char>& result) {
  const std::vector<long double> mine = numbers(c.type.dtype, input);
  std::vector<long double> sizes;
  for (long double x : mine) sizes.push_back(std::fabs(x));
  std::vector<long double> ref(mine.size());
  std::vector<long double> bound(mine.size());
  const int n = static_cast<int>(mine.size());
  world.base.Allreduce(mine.data(), ref.data(), n, MPI_LONG_DOUBLE, c.op.handle, comm);
  world.base.Allreduce(sizes.data(), bound.data(), n, MPI_LONG_DOUBLE, c.op.handle, comm);
  const bool single = c.type.dtype == Dtype::f32 || c.type.dtype == Dtype::c32;
  const long double u = std::ldexp(1.0L, single ? -24 : -53);
  const std::vector<long double> got = numbers(c.type.dtype, result);
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::fabs(got[i] - ref[i]) <= 2 * (nranks - 1) * u * bound[i]))
      return static_cast<long>(i);
  return -1;
}

// Element in which this rank's bits are not the root's, or -1.
long first_rank_difference(const World& world, const Case& c, const std::vector<char>& result) {
  std::vector<char> root = result;
  world.base.Bcast(root.data(), static_cast<int>(root.size()), MPI_BYTE, 0, c.comm->handle);
  return first_difference(c.type, root, result);
}

std::string describe(const Case& c, int nranks, const std::string& kinds) {
  char line[512];
  std::snprintf(line, sizeof line, "%s%s %s %s count %d%s on %s (%d ranks), root %d, %s data%s",
                c.nonblocking ? "i" : "", c.collective->name, c.type.name,
                c.collective->reduces ? c.op.name : "", c.count, c.in_place ? " in place" : "",
                c.comm->name, nranks, c.root % nranks, c.values == Values::real ? "real" : "exact",
                kinds.c_str());
  return line;
}

using CountCalls = unsigned long long (*)(const char*);
using CountPath = unsigned long long (*)(const char*, int);

unsigned long long natives(const char* collective) {
  static const auto path = reinterpret_cast<CountPath>(dlsym(RTLD_DEFAULT, "tutti_count_path"));
  return path == nullptr ? 0 : path(collective, 0);
}

// Movements are tutti's whatever their types; which reductions are, depends on more. A nonblocking call
// behind the set-up of its communicator is counted later, or goes below; so not before a blocking one.
bool must_be_native(const World& world, const Case& c, int nranks) {
  static std::set<MPI_Comm> set_up;
  const auto& names = world.options.native;
  if (nranks < 2 || std::find(names.begin(), names.end(), c.collective->name) == names.end())
    return false;
  if (!c.nonblocking) set_up.insert(c.comm->handle);
  return set_up.count(c.comm->handle) != 0;
}

// Runs a case; empty when both agree, else what this rank saw.
std::string run_case(const World& world, const Case& c, Random& random, const std::string& plant) {
  int nranks = 0;
  int rank = 0;
  MPI_Comm_size(c.comm->handle, &nranks);
  MPI_Comm_rank(c.comm->handle, &rank);
  const Collective& row = *c.collective;
  const int root = c.root % nranks;
  const size_t block = static_cast<size_t>(c.count) * c.type.extent();
  const int send_blocks = row.send_blocks(nranks, rank, root);
  const size_t send_bytes = send_blocks * block;
  const size_t own_bytes = row.recv_blocks(nranks, rank, root) * block;
  // Without a send buffer the data stand in the receive buffer, as in place.
  const bool in_place =
      row.has_in_place(rank, root) && ((send_blocks == 0 && is(row, "bcast")) || c.in_place);
  const size_t recv_bytes = in_place && scatters_vector(row) ? send_bytes : own_bytes;
  std::vector<char> input(in_place ? recv_bytes : send_bytes);
  fill(random, c.type, row.reduces ? c.op.op : Op::user, c.values, input);
  const kinds::Kind send_kind = world.kinds[random() % world.kinds.size()];
  const kinds::Kind recv_kind = world.kinds[random() % world.kinds.size()];
  const size_t shift = random() % 4 == 0 ? 0 : c.type.extent() * (random() % 4);
  Buffers host(kinds::Kind::host, kinds::Kind::host, input, recv_bytes, in_place, shift);
  Buffers ours(send_kind, recv_kind, input, recv_bytes, in_place, shift);
  const auto extent = static_cast<int>(c.type.extent());
  const Blocks each = make_blocks(nranks, c.count, c.type.handle, extent, weight);
  const Blocks pairs = make_blocks(nranks, c.count, c.type.handle, extent,
                                   [&](int other) { return pair_weight(rank, other); });
  const int count = by_weight(row) ? each.counts[static_cast<size_t>(rank)] : c.count;
  const auto call = [&](Buffers& b) {
    return Call{b.send(), b.recv(),       count, c.type.handle, c.op.handle,
                root,     c.comm->handle, &each, &pairs};
  };
  const int base_rc = perform(world.base, c, call(host));
  const unsigned long long before = natives(row.name);
  const int our_rc = perform(world.mine, c, call(ours));
  const unsigned long long after = natives(row.name);
  if (!plant.empty()) ours.spoil(plant);
  const std::string what = describe(
      c, nranks, std::string(", ") + kinds::name(send_kind) + " to " + kinds::name(recv_kind));
  if (class_of(base_rc) != class_of(our_rc))
    return what + ": error class " + std::to_string(class_of(our_rc)) + ", below " +
           std::to_string(class_of(base_rc));
  if (base_rc != MPI_SUCCESS) return "";
  if (must_be_native(world, c, nranks) && after != before + 1)
    return what + ": tutti left it to the MPI below";
  std::string fault;
  std::vector<char> expected = host.result(&fault);
  if (!fault.empty()) return what + ": below: " + fault;
  std::vector<char> got = ours.result(&fault);
  if (!fault.empty()) return what + ": " + fault;
  expected.resize(own_bytes);
  got.resize(own_bytes);
  long element = -1;
  if (c.values == Values::exact) {
    element = first_difference(c.type, expected, got);
  } else {
    element = first_inexact(world, c, c.comm->handle, nranks, input, got);
    const long unequal = first_rank_difference(world, c, got);
    if (unequal >= 0)
      return what + ": bits of element " + std::to_string(unequal) + " are not rank 0's";
  }
  if (element >= 0) return what + ": element " + std::to_string(element) + " is wrong";
  return "";
}

// ---- Calls that are errors. ----

// All on a communicator whose errors return; the class must be the base's.
std::vector<std::string> run_errors(const World& world, MPI_Comm comm) {
  std::vector<std::string> faults;
  // What is no error for one collective is a call like any other, with blocks for all ranks.
  std::vector<int> send(4 * 64, 1);
  std::vector<int> recv(4 * 64);
  int* in = send.data();
  int* out = recv.data();
  MPI_Datatype uncommitted;
  MPI_Type_contiguous(2, MPI_INT, &uncommitted);
  struct Bad {
    const char* what;
    const void* send;
    void* recv;
    int count;
    MPI_Datatype type;
    MPI_Op op;
    MPI_Comm comm;
  };
  const Bad rows[] = {
      {"negative count", in, out, -1, MPI_INT, MPI_SUM, comm},
      {"null type", in, out, 4, MPI_DATATYPE_NULL, MPI_SUM, comm},
      {"null operation", in, out, 4, MPI_INT, MPI_OP_NULL, comm},
      {"operation that the type lacks", in, out, 4, MPI_FLOAT, MPI_BAND, comm},
      {"sum of pairs", in, out, 1, MPI_2INT, MPI_SUM, comm},
      {"null communicator", in, out, 4, MPI_INT, MPI_SUM, MPI_COMM_NULL},
      {"one buffer twice", in, in, 4, MPI_INT, MPI_SUM, comm},
      {"one buffer twice, one element", in, in, 1, MPI_INT, MPI_SUM, comm},
      {"receive in place", in, MPI_IN_PLACE, 4, MPI_INT, MPI_SUM, comm},
      {"uncommitted type", in, out, 2, uncommitted, MPI_SUM, comm},
  };
  struct Form {
    const char* name;
    int (*blocking)(const Functions& f, const Bad& b);
    int (*nonblocking)(const Functions& f, const Bad& b, MPI_Request* request);
  };
  const Form forms[] = {
      {"allreduce",
       [](const Functions& f, const Bad& b) {
         return f.Allreduce(b.send, b.recv, b.count, b.type, b.op, b.comm);
       },
       [](const Functions& f, const Bad& b, MPI_Request* request) {
         return f.Iallreduce(b.send, b.recv, b.count, b.type, b.op, b.comm, request);
       }},
      {"scan",
       [](const Functions& f, const Bad& b) {
         return f.Scan(b.send, b.recv, b.count, b.type, b.op, b.comm);
       },
       [](const Functions& f, const Bad& b, MPI_Request* request) {
         return f.Iscan(b.send, b.recv, b.count, b.type, b.op, b.comm, request);
       }},
      {"reduce_scatter_block",
       [](const Functions& f, const Bad& b) {
         return f.Reduce_scatter_block(b.send, b.recv, b.count, b.type, b.op, b.comm);
       },
       [](const Functions& f, const Bad& b, MPI_Request* request) {
         return f.Ireduce_scatter_block(b.send, b.recv, b.count, b.type, b.op, b.comm, request);
       }},
      {"allgather",
       [](const Functions& f, const Bad& b) {
         return f.Allgather(b.send, b.count, b.type, b.recv, b.count, b.type, b.comm);
       },
       [](const Functions& f, const Bad& b, MPI_Request* request) {
         return f.Iallgather(b.send, b.count, b.type, b.recv, b.count, b.type, b.comm, request);
       }},
      {"alltoall",
       [](const Functions& f, const Bad& b) {
         return f.Alltoall(b.send, b.count, b.type, b.recv, b.count, b.type, b.comm);
       },
       [](const Functions& f, const Bad& b, MPI_Request* request) {
         return f.Ialltoall(b.send, b.count, b.type, b.recv, b.count, b.type, b.comm, request);
       }},
  };
  const auto check = [&](const char* form, const Bad& bad, int base_rc, int our_rc) {
    if (class_of(base_rc) != class_of(our_rc))
      faults.push_back(std::string(form) + " with " + bad.what + ": error class " +
                       std::to_string(class_of(our_rc)) + ", below " +
                       std::to_string(class_of(base_rc)));
  };
  const std::vector<std::string>& wanted = world.options.collectives;
  for (const Form& form : forms) {
    if (std::find(wanted.begin(), wanted.end(), form.name) == wanted.end()) continue;
    for (const Bad& bad : rows) {
      // Open MPI 4.1 dies of it in this one.
      if (bad.comm == MPI_COMM_NULL && form.name == std::string("allgather")) continue;
      const auto nonblocking = [&](const Functions& f) {
        MPI_Request request = MPI_REQUEST_NULL;
        const int rc = form.nonblocking(f, bad, &request);
        return rc == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : rc;
      };
      const int base_rc = form.blocking(world.base, bad);
      check(form.name, bad, base_rc, form.blocking(world.mine, bad));
      const int base_irc = nonblocking(world.base);
      check((std::string("nonblocking ") + form.name).c_str(), bad, base_irc,
            nonblocking(world.mine));
    }
  }
  MPI_Type_free(&uncommitted);
  return faults;
}

// ---- The run. ----

std::vector<Comm> make_comms() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm dup;
  MPI_Comm parity;
  MPI_Comm reversed;
  MPI_Comm uneven;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &parity);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 0 : 1, rank, &uneven);
  return {{"world", MPI_COMM_WORLD}, {"dup", dup},       {"parity split", parity},
          {"reversed", reversed},    {"uneven", uneven}, {"self", MPI_COMM_SELF}};
}

void make_user_types(World& world) {
  MPI_Datatype matrix;
  MPI_Datatype gapped;
  MPI_Op product;
  MPI_Op sum;
  MPI_Type_contiguous(4, MPI_UINT64_T, &matrix);
  MPI_Type_commit(&matrix);
  MPI_Type_create_resized(MPI_INT, 0, 8, &gapped);
  MPI_Type_commit(&gapped);
  MPI_Op_create(multiply_matrices, 0, &product);
  MPI_Op_create(add_gapped, 1, &sum);
  world.user_types = {{"matrix", matrix, Dtype::u64, 4}, {"gapped int", gapped, Dtype::i32, 1, 8}};
  world.user_operations = {{"matrix product", product, Op::user}, {"gapped sum", sum, Op::user}};
}

bool any_rank(const World& world, bool mine) {
  int in = mine ? 1 : 0;
  int out = 0;
  world.base.Allreduce(&in, &out, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return out != 0;
}

// Says how many calls tutti saw and kept; false when it kept too few: four standard deviations below the
// share, for the calls are drawn.
bool report_share(const World& world) {
  const auto calls = reinterpret_cast<CountCalls>(dlsym(RTLD_DEFAULT, "tutti_count_calls"));
  const auto path = reinterpret_cast<CountPath>(dlsym(RTLD_DEFAULT, "tutti_count_path"));
  if (calls == nullptr || path == nullptr) {
    if (world.rank == 0) std::printf("tutti is not loaded: control run\n");
    return world.options.native_at_least == 0;
  }
  const unsigned long long all = calls(nullptr);
  const unsigned long long native = path(nullptr, 0);
  if (world.rank == 0)
    std::printf("tutti: %llu calls, %llu native, %llu bounced, %llu below\n", all, native,
                path(nullptr, 1), path(nullptr, 2));
  const double share = world.options.native_at_least / 100.0;
  const auto drawn = static_cast<double>(all);
  return static_cast<double>(native) >=
             drawn * share - 4 * std::sqrt(drawn * share * (1 - share)) &&
         (native != 0 || share == 0);
}

bool run_cases(const World& world) {
  const Options& options = world.options;
  for (uint64_t i = options.first; i < options.first + options.cases; ++i) {
    std::seed_seq common{options.seed, i};
    Random shared(common);
    std::seed_seq own{options.seed, i, static_cast<uint64_t>(world.rank) + 1};
    Random local(own);
    const Case c = draw(world, shared);
    const bool last = i + 1 == options.first + options.cases;
    const std::string fault = run_case(world, c, local, last ? options.plant : "");
    if (!fault.empty()) std::printf("rank %d: %s\n", world.rank, fault.c_str());
    std::fflush(stdout);
    if (!any_rank(world, !fault.empty())) continue;
    if (world.rank == 0) {
      std::string kinds;
      for (const std::string& kind : options.kinds) kinds += (kinds.empty() ? "" : ",") + kind;
      std::string names;
      for (const std::string& name : options.collectives)
        names += (names.empty() ? "" : ",") + name;
      std::printf(
          "case %llu failed; replay it with --seed %llu --first %llu --cases 1 --kinds %s "
          "--collectives %s --max-bytes %zu\n",
          static_cast<unsigned long long>(i), static_cast<unsigned long long>(options.seed),
          static_cast<unsigned long long>(i), kinds.c_str(), names.c_str(), options.max_bytes);
    }
    return false;
  }
  return true;
}

void add_options(CLI::App& app, Options& options) {
  const std::vector<std::string> names = all_names();
  app.add_option("--cases", options.cases, "How many cases.")->capture_default_str();
  app.add_option("--seed", options.seed, "Seed; 0 draws one.");
  app.add_option("--first", options.first, "Number of the first case.");
  app.add_option("--collectives", options.collectives, "Which collectives.")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  app.add_option("--kinds", options.kinds, "Kinds of memory, drawn for each buffer of each rank.")
      ->delimiter(',')
      ->check(CLI::IsMember({"host", "pinned", "managed", "device", "async"}));
  app.add_option("--memory", options.memory,
                 "Where kinds but host come from: path of libtutti_emu.so, or cuda.");
  app.add_option("--max-bytes", options.max_bytes, "Largest buffer.")->capture_default_str();
  app.add_option("--native-at-least", options.native_at_least,
                 "Fail unless tutti kept this share of the calls, in percent.");
  app.add_option("--native", options.native, "Movements of which tutti must keep every call.")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  app.add_option("--timeout", options.timeout_s, "Seconds until the run is a hang.");
  app.add_flag("!--no-errors", options.errors,
               "Leave wrong arguments out: this MPI was built without checks and would crash.");
  app.add_option("--plant", options.plant, "Spoil the last case, which must then fail.")
      ->check(CLI::IsMember({"result", "canary"}));
}

int run(World& world) {
  Options& options = world.options;
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  if (options.seed == 0) options.seed = std::random_device()() | 1;
  void* base = open_base();
  if (base == nullptr) {
    std::fprintf(stderr, "twin_test: cannot find the MPI library among the loaded ones\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  world.base = below(base);
  world.mine = ours();
  world.base.Bcast(&options.seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  std::string why;
  if (!kinds::open_memory(options.memory, world.rank, &why)) {
    std::fprintf(stderr, "twin_test: %s\n", why.c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  for (const std::string& kind : options.kinds) world.kinds.push_back(kinds::find_kind(kind));
  world.types = predefined_types();
  make_user_types(world);
  world.comms = make_comms();
  for (const Comm& comm : world.comms) MPI_Comm_set_errhandler(comm.handle, MPI_ERRORS_RETURN);
  bool good = run_cases(world);
  if (good && options.plant.empty() && options.errors) {
    const std::vector<std::string> faults = run_errors(world, world.comms[1].handle);
    for (const std::string& fault : faults) std::printf("rank %d: %s\n", world.rank, fault.c_str());
    good = !any_rank(world, !faults.empty());
  }
  const bool share = report_share(world);
  if (!share) std::printf("rank %d: too few calls were native\n", world.rank);
  good = !any_rank(world, !good || !share);
  if (world.rank == 0)
    std::printf("twin_test: seed %llu, %llu cases: %s\n",
                static_cast<unsigned long long>(options.seed),
                static_cast<unsigned long long>(options.cases), good ? "passed" : "FAILED");
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  World world;
  CLI::App app("Random collective calls, with and without tutti, compared.");
  add_options(app, world.options);
  CLI11_PARSE(app, argc, argv);
  alarm(world.options.timeout_s);
  MPI_Init(nullptr, nullptr);
  const int rc = run(world);
  std::fflush(stdout);
  MPI_Finalize();
  return rc;
}
