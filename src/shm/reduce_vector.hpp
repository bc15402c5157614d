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
#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "shm/reduce_table.hpp"

namespace tutti::shm::TUTTI_REDUCE_VARIANT {

inline constexpr int vector_bytes = TUTTI_REDUCE_VECTOR_BYTES;

// Vectors a step: four independent chains hide the latency of the operation.
inline constexpr int unroll = 4;

// Parts that one sweep reads side by side: eight streams are what prefetchers follow with ease.
inline constexpr int sweep_parts = 8;

// With more parts than a sweep takes, partial results of a block wait in a buffer on the stack:
// this many elements of at most 8 bytes, 8 KiB, so that they stay in the first-level cache (32 KiB
// and more) beside the lines of eight parts.
inline constexpr size_t block_elements = 1024;

template <class T, int N>
struct VecOf {
  typedef T type __attribute__((vector_size(N * sizeof(T))));
};
template <class T, int N>
using Vec = typename VecOf<T, N>::type;

// The vector with unsigned lanes of the same width, for work on bits.
template <int Bytes>
struct Unsigned;
template <>
struct Unsigned<1> {
  using type = uint8_t;
};
template <>
struct Unsigned<2> {
  using type = uint16_t;
};
template <>
struct Unsigned<4> {
  using type = uint32_t;
};
template <>
struct Unsigned<8> {
  using type = uint64_t;
};
template <class T>
using Bits = typename Unsigned<sizeof(T)>::type;

template <size_t... I>
struct Indices {};
template <int N, size_t... I>
struct MakeIndicesOf : MakeIndicesOf<N - 1, N - 1, I...> {};
template <size_t... I>
struct MakeIndicesOf<0, I...> {
  using type = Indices<I...>;
};
template <int N>
using MakeIndices = typename MakeIndicesOf<N>::type;

template <class T>
inline constexpr bool is_single = false;
template <>
inline constexpr bool is_single<float> = true;
template <class T>
inline constexpr bool is_double = false;
template <>
inline constexpr bool is_double<double> = true;

// ---- Items: how elements lie in memory, and what they are while they accumulate. ----
// An item has: bytes (of an element in memory), Wide (a lane of the accumulator), lanes (of Wide,
// an element), load, store, and `narrow`: whether memory and accumulator differ.

template <class T, int Lanes = 1>
struct Plain {
  using Wide = T;
  static constexpr int lanes = Lanes;
  static constexpr size_t bytes = Lanes * sizeof(T);
  static constexpr bool narrow = false;
  template <int N>
  static Vec<T, N> load(const char* from) {
    Vec<T, N> v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
  }
  template <int N>
  static void store(char* to, Vec<T, N> v) {
    __builtin_memcpy(to, &v, sizeof v);
  }
};

// The lower lanes of a vector padded to more: conversions exist for 4 lanes and more.
template <class T, int N, int M>
inline Vec<T, M> widen(Vec<T, N> v) {
  Vec<T, M> out = {};
  __builtin_memcpy(&out, &v, sizeof v);
  return out;
}
template <class T, int M, int N>
inline Vec<T, N> shrink(Vec<T, M> v) {
  Vec<T, N> out;
  __builtin_memcpy(&out, &v, sizeof out);
  return out;
}

struct F16 {
  // Exact. A signalling NaN becomes quiet, as the instruction does it.
  template <int N>
  static Vec<float, N> to_float(Vec<uint16_t, N> half) {
#if defined(__AVX512F__)
    if constexpr (N == 16) return (Vec<float, N>)_mm512_maskz_cvtph_ps(0xffff, (__m256i)half);
#endif
#if defined(__F16C__)
    if constexpr (N == 8) return (Vec<float, N>)_mm256_cvtph_ps((__m128i)half);
    if constexpr (N <= 4)
      return shrink<float, 4, N>((Vec<float, 4>)_mm_cvtph_ps((__m128i)widen<uint16_t, N, 8>(half)));
#endif
    const Vec<uint32_t, N> h = __builtin_convertvector(half, Vec<uint32_t, N>);
    const Vec<uint32_t, N> rest = (h & 0x7fff) << 13;
    const Vec<uint32_t, N> rebias = rest + (uint32_t{127 - 15} << 23);
    // Subnormal: give it exponent 1 and take the implicit one away again.
    const Vec<float, N> tiny = (Vec<float, N>)(rebias + (uint32_t{1} << 23)) - 0x1p-14f;
    const Vec<uint32_t, N> quiet = rest > uint32_t{0x7c00} << 13 ? (rest | 0x400000) : rest;
    Vec<uint32_t, N> out = rest < uint32_t{1} << 23 ? (Vec<uint32_t, N>)tiny : rebias;
    out = rest >= uint32_t{0x7c00} << 13 ? (quiet | 0x7f800000) : out;
    return (Vec<float, N>)(out | (h & 0x8000) << 16);
  }
  // Rounds to nearest even; a NaN keeps its sign and upper payload and becomes quiet.
  template <int N>
  static Vec<uint16_t, N> from_float(Vec<float, N> value) {
#if defined(__AVX512F__)
    if constexpr (N == 16)
      return (Vec<uint16_t, N>)_mm512_maskz_cvtps_ph(0xffff, (__m512)value,
                                                     _MM_FROUND_TO_NEAREST_INT);
#endif
#if defined(__F16C__)
    if constexpr (N == 8)
      return (Vec<uint16_t, N>)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
    if constexpr (N <= 4) {
      const __m128 four = (__m128)widen<float, N, 4>(value);
      return shrink<uint16_t, 8, N>(
          (Vec<uint16_t, 8>)_mm_cvtps_ph(four, _MM_FROUND_TO_NEAREST_INT));
    }
#endif
    const Vec<uint32_t, N> bits = (Vec<uint32_t, N>)value;
    const Vec<uint32_t, N> rest = bits & 0x7fffffff;
    // Subnormal or zero: an addition whose last place is that of the result does the rounding.
    const Vec<uint32_t, N> tiny =
        (Vec<uint32_t, N>)((Vec<float, N>)rest + 0.5f) - uint32_t{0x3f000000};
    const Vec<uint32_t, N> normal =
        (rest - (uint32_t{127 - 15} << 23) + 0xfff + ((rest >> 13) & 1)) >> 13;
    const Vec<uint32_t, N> nan = (rest >> 13 & 0x3ff) | 0x7e00;
    Vec<uint32_t, N> out = rest < uint32_t{0x38800000} ? tiny : normal;
    out = rest >= uint32_t{0x47800000} ? (0x7c00 | (rest & 0)) : out;
    out = rest > uint32_t{0x7f800000} ? nan : out;
    out |= bits >> 16 & 0x8000;
    return __builtin_convertvector(out, Vec<uint16_t, N>);
  }
};

struct Bf16 {
  template <int N>
  static Vec<float, N> to_float(Vec<uint16_t, N> brain) {
    return (Vec<float, N>)(__builtin_convertvector(brain, Vec<uint32_t, N>) << 16);
  }
  // Not by vcvtneps2bf16, which takes denormals for zero.
  template <int N>
  static Vec<uint16_t, N> from_float(Vec<float, N> value) {
    const Vec<uint32_t, N> bits = (Vec<uint32_t, N>)value;
    const Vec<uint32_t, N> rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const Vec<uint32_t, N> nan = bits >> 16 | 0x40;
    const Vec<uint32_t, N> out = (bits & 0x7fffffff) > uint32_t{0x7f800000} ? nan : rounded;
    return __builtin_convertvector(out, Vec<uint16_t, N>);
  }
};

template <class Format>
struct Narrow {
  using Wide = float;
  static constexpr int lanes = 1;
  static constexpr size_t bytes = 2;
  static constexpr bool narrow = true;
  template <int N>
  static Vec<float, N> load(const char* from) {
    Vec<uint16_t, N> v;
    __builtin_memcpy(&v, from, sizeof v);
    return Format::template to_float<N>(v);
  }
  template <int N>
  static void store(char* to, Vec<float, N> value) {
    const Vec<uint16_t, N> v = Format::template from_float<N>(value);
    __builtin_memcpy(to, &v, sizeof v);
  }
};

// ---- Operations on a vector of lanes T. ----

// Of two NaNs x86 gives the first operand, but compilers swap the operands of additions and
// products as they like, differently in each place. Written out, the lower rank's NaN comes out
// everywhere.
#if defined(__AVX__)
#define TUTTI_IN_ORDER(name, instruction, symbol)                    \
  template <class V>                                                 \
  inline V name(V a, V b) {                                          \
    V out;                                                           \
    asm("v" instruction " %2, %1, %0" : "=x"(out) : "x"(a), "x"(b)); \
    return out;                                                      \
  }
#elif defined(__x86_64__)
#define TUTTI_IN_ORDER(name, instruction, symbol)  \
  template <class V>                               \
  inline V name(V a, V b) {                        \
    asm(instruction " %1, %0" : "+x"(a) : "x"(b)); \
    return a;                                      \
  }
#else
#define TUTTI_IN_ORDER(name, instruction, symbol) \
  template <class V>                              \
  inline V name(V a, V b) {                       \
    return a symbol b;                            \
  }
#endif
TUTTI_IN_ORDER(add_singles, "addps", +)
TUTTI_IN_ORDER(add_doubles, "addpd", +)
TUTTI_IN_ORDER(multiply_singles, "mulps", *)
TUTTI_IN_ORDER(multiply_doubles, "mulpd", *)
#undef TUTTI_IN_ORDER

// Registers have 16 bytes at least; the lanes that pad a narrower vector are zero and raise
// nothing.
template <class T, int N>
inline constexpr int register_lanes = N * sizeof(T) < 16 ? 16 / sizeof(T) : N;

struct Sum {
  template <class T, int N>
  static Vec<T, N> apply(Vec<T, N> a, Vec<T, N> b) {
    constexpr int M = register_lanes<T, N>;
    if constexpr (is_single<T>)
      return shrink<T, M, N>(add_singles(widen<T, N, M>(a), widen<T, N, M>(b)));
    else if constexpr (is_double<T>)
      return shrink<T, M, N>(add_doubles(widen<T, N, M>(a), widen<T, N, M>(b)));
    else
      return a + b;
  }
};

struct Prod {
  template <class T, int N>
  static Vec<T, N> apply(Vec<T, N> a, Vec<T, N> b) {
    constexpr int M = register_lanes<T, N>;
    if constexpr (is_single<T>)
      return shrink<T, M, N>(multiply_singles(widen<T, N, M>(a), widen<T, N, M>(b)));
    else if constexpr (is_double<T>)
      return shrink<T, M, N>(multiply_doubles(widen<T, N, M>(a), widen<T, N, M>(b)));
    else
      return a * b;
  }
};

// Lanes are real and imaginary parts in turn.
struct ComplexProd {
  template <class T, int N, size_t... I>
  static Vec<T, N> product(Vec<T, N> a, Vec<T, N> b, Indices<I...>) {
    const Vec<T, N> real = __builtin_shufflevector(a, a, static_cast<int>(I & ~size_t{1})...);
    const Vec<T, N> imag = __builtin_shufflevector(a, a, static_cast<int>(I | 1)...);
    const Vec<T, N> swapped = __builtin_shufflevector(b, b, static_cast<int>(I ^ 1)...);
    const Vec<T, N> sign = {((I & 1) != 0 ? T{0} : -T{0})...};
    const Vec<T, N> straight = Prod::apply<T, N>(real, b);
    const Vec<T, N> cross = Prod::apply<T, N>(imag, swapped);
    const Vec<T, N> turned = (Vec<T, N>)((Vec<Bits<T>, N>)cross ^ (Vec<Bits<T>, N>)sign);
    return Sum::apply<T, N>(straight, turned);
  }
  template <class T, int N>
  static Vec<T, N> apply(Vec<T, N> a, Vec<T, N> b) {
    return product<T, N>(a, b, MakeIndices<N>());
  }
};

template <bool Max>
struct IntegerExtreme {
  template <class T, int N>
  static Vec<T, N> apply(Vec<T, N> a, Vec<T, N> b) {
    return (Max ? a > b : a < b) ? a : b;
  }
};

template <bool Max>
struct RealExtreme {
  template <class T, int N>
  static Vec<T, N> apply(Vec<T, N> a, Vec<T, N> b) {
    using U = Vec<Bits<T>, N>;
    // Equal numbers differ at most in the sign of zero: min takes it if any has it, max if all
    // have.
    const U zero = Max ? (U)a & (U)b : (U)a | (U)b;
    const U other = (a == b) ? zero : (U)b;  // b also when b alone is a NaN
    const U better = (Max ? a > b : a < b) ? (U)a : other;
    return (Vec<T, N>)(a != a ? (U)a : better);
  }
};

// On the bits of a 16-bit float: sign and magnitude become an integer that is ordered likewise.
template <bool Max, uint16_t Infinity>
struct BitsExtreme {
  template <class T, int N>
  static Vec<T, N> apply(Vec<T, N> a, Vec<T, N> b) {
    using S = Vec<int16_t, N>;
    const S sa = (S)a;
    const S sb = (S)b;
    const S ka = sa ^ ((sa >> 15) & 0x7fff);
    const S kb = sb ^ ((sb >> 15) & 0x7fff);
    const S number = (Max ? ka >= kb : ka <= kb) ? sa : sb;
    const S other = (sb & 0x7fff) > int16_t{Infinity} ? sb : number;
    return (Vec<T, N>)((sa & 0x7fff) > int16_t{Infinity} ? sa : other);
  }
};

struct LogicalAnd {
  template <class T, int N>
  static Vec<T, N> apply(Vec<T, N> a, Vec<T, N> b) {
    return (Vec<T, N>)((a != 0) & (b != 0)) & 1;
  }
};
struct LogicalOr {
  template <class T, int N>
  static Vec<T, N> apply(Vec<T, N> a, Vec<T, N> b) {
    return (Vec<T, N>)((a | b) != 0) & 1;
  }
};
struct LogicalXor {
  template <class T, int N>
  static Vec<T, N> apply(Vec<T, N> a, Vec<T, N> b) {
    return (Vec<T, N>)((a != 0) ^ (b != 0)) & 1;
  }
};

struct BitAnd {
  template <class T, int N>
  static Vec<T, N> apply(Vec<T, N> a, Vec<T, N> b) {
    return a & b;
  }
};
struct BitOr {
  template <class T, int N>
  static Vec<T, N> apply(Vec<T, N> a, Vec<T, N> b) {
    return a | b;
  }
};
struct BitXor {
  template <class T, int N>
  static Vec<T, N> apply(Vec<T, N> a, Vec<T, N> b) {
    return a ^ b;
  }
};

// ---- One sweep over at most sweep_parts parts. ----

// Where a sweep starts from and what it leaves, when partial results of narrow items wait as Wide.
struct Partial {
  const char* seed = nullptr;  // accumulators to start from; null: the first part
  char* keep = nullptr;        // accumulators to leave; null: the result in the item's own format
};

// U vectors of N lanes at byte `at` of all parts. P is the number of parts, or 0 for `nparts`.
template <class Item, class Operation, int N, int U, int P>
inline __attribute__((always_inline)) void step(char* to, const char* const* parts, int nparts,
                                                size_t element, const Partial& partial) {
  using Wide = typename Item::Wide;
  constexpr size_t vector = N / Item::lanes * Item::bytes;
  const size_t at = element * Item::bytes;
  const size_t wide_at = element * Item::lanes * sizeof(Wide);
  const int n = P != 0 ? P : nparts;
  Vec<Wide, N> sum[U];
  int first = 1;
  if (Item::narrow && partial.seed != nullptr) {
    first = 0;
    for (int u = 0; u < U; ++u)
      __builtin_memcpy(&sum[u], partial.seed + wide_at + u * sizeof sum[u], sizeof sum[u]);
  } else {
    for (int u = 0; u < U; ++u) sum[u] = Item::template load<N>(parts[0] + at + u * vector);
  }
  for (int k = first; k < n; ++k)
    for (int u = 0; u < U; ++u)
      sum[u] = Operation::template apply<Wide, N>(
          sum[u], Item::template load<N>(parts[k] + at + u * vector));
  if (Item::narrow && partial.keep != nullptr) {
    for (int u = 0; u < U; ++u)
      __builtin_memcpy(partial.keep + wide_at + u * sizeof sum[u], &sum[u], sizeof sum[u]);
  } else {
    for (int u = 0; u < U; ++u) Item::template store<N>(to + at + u * vector, sum[u]);
  }
}

// What is left when less than N lanes' worth of elements may be: halves the vector down to an
// element.
template <class Item, class Operation, int N, int P>
inline __attribute__((always_inline)) void tail(char* to, const char* const* parts, int nparts,
                                                size_t element, size_t left,
                                                const Partial& partial) {
  constexpr size_t elements = N / Item::lanes;
  if (left >= elements) {
    step<Item, Operation, N, 1, P>(to, parts, nparts, element, partial);
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
    step<Item, Operation, lanes, unroll, P>(to, parts, nparts, i, partial);
  for (; i + elements <= count; i += elements)
    step<Item, Operation, lanes, 1, P>(to, parts, nparts, i, partial);
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
