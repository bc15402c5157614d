// The vector kernels, compiled once per CPU variant.
//
// A file of a variant defines TUTTI_REDUCE_VARIANT (a namespace) and TUTTI_REDUCE_VECTOR_BYTES, is
// compiled with that variant's flags and includes this. Everything below sits in that namespace,
// and no template or inline function of another header may be used: the linker would keep one copy
// of it for all files, perhaps the one with instructions that the CPU lacks.
//
// Vectors are the compilers' portable ones. A tail is done by narrower vectors down to one element,
// not by other code, so an element's bits do not depend on where in the buffer it stands.
#include <cstddef>
#include <cstdint>

#include "shm/reduce_lanes.hpp"
#include "shm/reduce_table.hpp"

namespace tutti::shm::TUTTI_REDUCE_VARIANT {

inline constexpr int vector_bytes = TUTTI_REDUCE_VECTOR_BYTES;

// The three constants below: f32 sum, GB/s of all parts and the result, one core of an EPYC 9004
// (32 KiB L1, 1 MiB L2) shared with other work, best of 5, bench/reduce_bench, g++ 12, 2026-11-29:
//                            avx2  avx512
//   memcpy 64 KiB / 1 MiB       95 / 84
//   2 parts of 64 KiB          108     105
//   8 parts of 64 KiB           78      82
//   32 parts of 64 KiB          68      65
//   32 parts of 1 MiB           24      22   (memcpy of 16 MiB: 19)

// Vectors a step: independent chains that hide the latency of the operation. 2, 4 and 8 are equal
// for 2 parts; for 8 parts of 64 KiB 74, 80 and 87, but 8 lengthens short calls.
inline constexpr int unroll = 4;

// Parts that one sweep reads side by side. With 16, 32 parts of 64 KiB fall to 44: more streams
// than the prefetchers follow. With 4, 8 parts of 64 bytes fall to a third.
inline constexpr int sweep_parts = 8;

// With more parts than a sweep takes, partial results of a block wait in a buffer on the stack:
// this many elements of at most 8 bytes, 8 KiB, so that they stay in the first-level cache (32 KiB
// and more) beside the lines of eight parts.
inline constexpr size_t block_elements = 1024;

// ---- One sweep over at most sweep_parts parts. ----

// Where a sweep starts from and what it leaves, when partial results of narrow items wait as Wide.
struct Partial {
  const char* seed = nullptr;  // accumulators to start from; null: the first part
  char* keep = nullptr;        // accumulators to leave; null: the result in the item's own format
};

// Vectors I... of N lanes, from `element` on, of all parts. P is the number of parts, or 0 for
// `nparts`. Packs, not loops: a loop that the compiler leaves standing keeps the accumulators in
// memory.
template <class Item, class Operation, int N, int P, size_t... I>
inline __attribute__((always_inline)) void step(Indices<I...>, char* to, const char* const* parts,
                                                int nparts, size_t element,
                                                const Partial& partial) {
  using Wide = typename Item::Wide;
  using V = Vec<Wide, N>;
  constexpr size_t vector = N / Item::lanes * Item::bytes;
  const size_t at = element * Item::bytes;
  const size_t wide_at = element * Item::lanes * sizeof(Wide);
  const int n = P != 0 ? P : nparts;
  V sum[sizeof...(I)];
  int k = 0;
  if (Item::narrow && partial.seed != nullptr) {
    (__builtin_memcpy(&sum[I], partial.seed + wide_at + I * sizeof(V), sizeof(V)), ...);
  } else {
    ((sum[I] = Item::template load<N>(parts[0] + at + I * vector)), ...);
    k = 1;
  }
  for (; k < n; ++k)
    ((sum[I] = Operation::template apply<Wide, N>(
          sum[I], Item::template load<N>(parts[k] + at + I * vector))),
     ...);
  if (Item::narrow && partial.keep != nullptr)
    (__builtin_memcpy(partial.keep + wide_at + I * sizeof(V), &sum[I], sizeof(V)), ...);
  else
    (Item::template store<N>(to + at + I * vector, sum[I]), ...);
}

// What is left when less than N lanes' worth of elements may be: halves the vector down to an
// element.
template <class Item, class Operation, int N, int P>
inline __attribute__((always_inline)) void tail(char* to, const char* const* parts, int nparts,
                                                size_t element, size_t left,
                                                const Partial& partial) {
  constexpr size_t elements = N / Item::lanes;
  if (left >= elements) {
    step<Item, Operation, N, P>(Indices<0>(), to, parts, nparts, element, partial);
    element += elements;
    left -= elements;
  }
  if constexpr (elements > 1)
    tail<Item, Operation, N / 2, P>(to, parts, nparts, element, left, partial);
}

template <class Item, class Operation, int P>
inline __attribute__((always_inline)) void sweep(char* to, const char* const* parts, int nparts,
                                                 size_t count, const Partial& partial) {
  constexpr int lanes = vector_bytes / static_cast<int>(sizeof(typename Item::Wide));
  constexpr size_t elements = lanes / Item::lanes;
  size_t i = 0;
  for (; i + unroll * elements <= count; i += unroll * elements)
    step<Item, Operation, lanes, P>(MakeIndices<unroll>(), to, parts, nparts, i, partial);
  for (; i + elements <= count; i += elements)
    step<Item, Operation, lanes, P>(Indices<0>(), to, parts, nparts, i, partial);
  if (i < count) tail<Item, Operation, lanes / 2, P>(to, parts, nparts, i, count - i, partial);
}

template <class Item, class Operation>
void two(void* to, const void* lower, const void* higher, size_t count) {
  const char* const parts[2] = {static_cast<const char*>(lower), static_cast<const char*>(higher)};
  sweep<Item, Operation, 2>(static_cast<char*>(to), parts, 2, count, Partial());
}

// More parts than one sweep takes, for one block of elements. Partial results never wait in `to`,
// which may be a part that is still to be read.
template <class Item, class Operation>
void block(char* to, const char* const* parts, int nparts, size_t begin, size_t count) {
  using Wide = typename Item::Wide;
  alignas(64) char sums[block_elements * Item::lanes * sizeof(Wide)];
  static_assert(sizeof sums <= 16384);
  const char* here[sweep_parts + 1];
  char* out = to + begin * Item::bytes;
  for (int done = 0; done < nparts;) {
    const int now = nparts - done < sweep_parts ? nparts - done : sweep_parts;
    const bool last = done + now == nparts;
    int n = 0;
    if (!Item::narrow && done != 0) here[n++] = sums;
    for (int k = 0; k < now; ++k) here[n++] = parts[done + k] + begin * Item::bytes;
    Partial partial;
    if (Item::narrow) {
      partial.seed = done == 0 ? nullptr : sums;
      partial.keep = last ? nullptr : sums;
    }
    sweep<Item, Operation, 0>(last ? out : sums, here, n, count, partial);
    done += now;
  }
}

template <class Item, class Operation>
void many(void* to, const void* const* parts, int nparts, size_t count) {
  const char* const* from = reinterpret_cast<const char* const*>(parts);
  if (nparts == 1) {
    if (to != parts[0]) __builtin_memcpy(to, parts[0], count * Item::bytes);
  } else if (nparts <= sweep_parts) {
    sweep<Item, Operation, 0>(static_cast<char*>(to), from, nparts, count, Partial());
  } else {
    for (size_t i = 0; i < count; i += block_elements)
      block<Item, Operation>(static_cast<char*>(to), from, nparts, i,
                             count - i < block_elements ? count - i : block_elements);
  }
}

// ---- The table. ----

template <class Item, class Operation>
void set(ReducerTable& table, Op op, Dtype dtype, uint32_t units = 1) {
  set_reducer(table, op, dtype, two<Item, Operation>, many<Item, Operation>, units);
}

template <class U>
void add_logical(ReducerTable& table, Dtype dtype) {
  set<Plain<U>, LogicalAnd>(table, Op::land, dtype);
  set<Plain<U>, LogicalOr>(table, Op::lor, dtype);
  set<Plain<U>, LogicalXor>(table, Op::lxor, dtype);
}

// Operations on bits care for no width: one set of functions, which counts bytes.
void add_bits(ReducerTable& table, Dtype dtype, uint32_t bytes) {
  set<Plain<uint8_t>, BitAnd>(table, Op::band, dtype, bytes);
  set<Plain<uint8_t>, BitOr>(table, Op::bor, dtype, bytes);
  set<Plain<uint8_t>, BitXor>(table, Op::bxor, dtype, bytes);
}

template <class T>
void add_integer(ReducerTable& table, Dtype dtype) {
  using U = Bits<T>;
  // Two's complement: sums and products of signed numbers are those of unsigned ones, and defined.
  set<Plain<U>, Sum>(table, Op::sum, dtype);
  set<Plain<U>, Prod>(table, Op::prod, dtype);
  set<Plain<T>, IntegerExtreme<false>>(table, Op::min, dtype);
  set<Plain<T>, IntegerExtreme<true>>(table, Op::max, dtype);
  add_logical<U>(table, dtype);
  add_bits(table, dtype, sizeof(T));
}

template <class T>
void add_real(ReducerTable& table, Dtype real, Dtype complex) {
  set<Plain<T>, Sum>(table, Op::sum, real);
  set<Plain<T>, Sum>(table, Op::sum, complex, 2);
  set<Plain<T>, Prod>(table, Op::prod, real);
  set<Plain<T, 2>, ComplexProd>(table, Op::prod, complex);
  set<Plain<T>, RealExtreme<false>>(table, Op::min, real);
  set<Plain<T>, RealExtreme<true>>(table, Op::max, real);
}

template <class Format, uint16_t Infinity>
void add_narrow(ReducerTable& table, Dtype real) {
  set<Narrow<Format>, Sum>(table, Op::sum, real);
  set<Narrow<Format>, Prod>(table, Op::prod, real);
  set<Plain<uint16_t>, BitsExtreme<false, Infinity>>(table, Op::min, real);
  set<Plain<uint16_t>, BitsExtreme<true, Infinity>>(table, Op::max, real);
}

void add(ReducerTable& table) {
  add_integer<int8_t>(table, Dtype::i8);
  add_integer<int16_t>(table, Dtype::i16);
  add_integer<int32_t>(table, Dtype::i32);
  add_integer<int64_t>(table, Dtype::i64);
  add_integer<uint8_t>(table, Dtype::u8);
  add_integer<uint16_t>(table, Dtype::u16);
  add_integer<uint32_t>(table, Dtype::u32);
  add_integer<uint64_t>(table, Dtype::u64);
  add_logical<uint8_t>(table, Dtype::l8);
  add_logical<uint16_t>(table, Dtype::l16);
  add_logical<uint32_t>(table, Dtype::l32);
  add_logical<uint64_t>(table, Dtype::l64);
  add_bits(table, Dtype::byte, 1);
  add_real<float>(table, Dtype::f32, Dtype::c32);
  add_real<double>(table, Dtype::f64, Dtype::c64);
  add_narrow<F16, 0x7c00>(table, Dtype::f16);
  add_narrow<Bf16, 0x7f80>(table, Dtype::bf16);
}

}  // namespace tutti::shm::TUTTI_REDUCE_VARIANT
