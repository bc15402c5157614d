// What an element is in vector registers, and the operations on them: part of reduce_vector.hpp,
// whose rules hold here too.
#include <cstddef>
#include <cstdint>
#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace tutti::shm::TUTTI_REDUCE_VARIANT {

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

// Between 16 and 32 bits, upper halves zero. Compilers widen and narrow whole registers by halves.
template <int N>
inline Vec<uint32_t, N> widen_bits(Vec<uint16_t, N> v) {
#if defined(__AVX512F__)
  if constexpr (N == 16) return (Vec<uint32_t, N>)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)v);
#endif
#if defined(__AVX2__)
  if constexpr (N == 8) return (Vec<uint32_t, N>)_mm256_cvtepu16_epi32((__m128i)v);
#endif
  return __builtin_convertvector(v, Vec<uint32_t, N>);
}
template <int N>
inline Vec<uint16_t, N> narrow_bits(Vec<uint32_t, N> v) {
#if defined(__AVX512F__)
  if constexpr (N == 16) return (Vec<uint16_t, N>)_mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)v);
#endif
#if defined(__AVX2__)
  if constexpr (N == 8) {
    const __m256i packed = _mm256_packus_epi32((__m256i)v, (__m256i)v);  // within 128-bit halves
    return (Vec<uint16_t, N>)_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
  }
#endif
  return __builtin_convertvector(v, Vec<uint16_t, N>);
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
    const Vec<uint32_t, N> h = widen_bits<N>(half);
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
    return narrow_bits<N>(out);
  }
};

struct Bf16 {
  template <int N>
  static Vec<float, N> to_float(Vec<uint16_t, N> brain) {
    return (Vec<float, N>)(widen_bits<N>(brain) << 16);
  }
  // Not by vcvtneps2bf16, which takes denormals for zero.
  template <int N>
  static Vec<uint16_t, N> from_float(Vec<float, N> value) {
    const Vec<uint32_t, N> bits = (Vec<uint32_t, N>)value;
    const Vec<uint32_t, N> rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const Vec<uint32_t, N> nan = bits >> 16 | 0x40;
    const Vec<uint32_t, N> out = (bits & 0x7fffffff) > uint32_t{0x7f800000} ? nan : rounded;
    return narrow_bits<N>(out);
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

}  // namespace tutti::shm::TUTTI_REDUCE_VARIANT
