// The arithmetic: n operands of a few words each, folded in rank order.
//
// Order, rounding and the rules for NaN and zero are those of the host reductions (shm/reduce.hpp),
// so that a call gives the same bits whichever path it takes (DESIGN law 5): operand 0 first, then
// 1, 2,
// ...; sums and products of 16-bit types accumulate in fp32 and round once at the end. In minimum
// and maximum a NaN wins over every number, of several the lowest rank's, bit for bit, and -0.0 is
// less than +0.0. Only the payload of a NaN that a sum or product makes is the machine's.
#pragma once

#include "gpu/kernel/machine.hpp"
#include "gpu/reduction.hpp"

namespace tutti::gpu {

template <class T, class From>
TUTTI_KERNEL_FN T as(From from) {
  static_assert(sizeof(T) == sizeof(From));
  return __builtin_bit_cast(T, from);
}

template <Fold fold, class T>
TUTTI_KERNEL_FN T apply(T a, T b) {
  if constexpr (fold == Fold::sum) return a + b;
  if constexpr (fold == Fold::prod) return a * b;
  if constexpr (fold == Fold::min) return a < b ? a : b;
  if constexpr (fold == Fold::max) return a > b ? a : b;
}

// Minimum or maximum of two floating numbers by their bits: turned into integers that are ordered
// likewise. Signed is the integer of the type's width; 16-bit types come shifted to the top of 32.
template <Fold fold, class Signed>
TUTTI_KERNEL_FN Signed extreme(Signed a, Signed b, Signed infinity) {
  constexpr int sign_bit = sizeof(Signed) * 8 - 1;
  constexpr Signed magnitude = static_cast<Signed>(~(Signed{1} << sign_bit));
  if ((a & magnitude) > infinity) return a;
  if ((b & magnitude) > infinity) return b;
  const Signed key_a = a ^ ((a >> sign_bit) & magnitude);
  const Signed key_b = b ^ ((b >> sign_bit) & magnitude);
  return (fold == Fold::min ? key_a <= key_b : key_a >= key_b) ? a : b;
}
template <Fold fold>
TUTTI_KERNEL_FN float apply(float a, float b) {
  if constexpr (fold == Fold::sum) return a + b;
  if constexpr (fold == Fold::prod) return a * b;
  return as<float>(extreme<fold>(as<int32_t>(a), as<int32_t>(b), int32_t{0x7f800000}));
}
template <Fold fold>
TUTTI_KERNEL_FN double apply(double a, double b) {
  if constexpr (fold == Fold::sum) return a + b;
  if constexpr (fold == Fold::prod) return a * b;
  return as<double>(extreme<fold>(as<int64_t>(a), as<int64_t>(b), int64_t{0x7ff} << 52));
}

// Types of 4 bytes, one a word. Signed integers wrap: they are added as unsigned ones.
template <class M, int Words, int N, Fold fold, class T>
TUTTI_KERNEL_FN void fold_words(const uint32_t (&v)[N][Words], uint32_t n, uint32_t (&out)[Words]) {
  TUTTI_UNROLL
  for (int i = 0; i < Words; ++i) {
    T sum = as<T>(v[0][i]);
    TUTTI_UNROLL
    for (int s = 1; s < N; ++s)
      if (N == 2 || static_cast<uint32_t>(s) < n) sum = apply<fold>(sum, as<T>(v[s][i]));
    out[i] = as<uint32_t>(sum);
  }
}

// Types of 8 bytes, low word first.
template <class M, int Words, int N, Fold fold, class T>
TUTTI_KERNEL_FN void fold_pairs(const uint32_t (&v)[N][Words], uint32_t n, uint32_t (&out)[Words]) {
  TUTTI_UNROLL
  for (int i = 0; i + 1 < Words; i += 2) {
    T sum = as<T>(v[0][i] | static_cast<uint64_t>(v[0][i + 1]) << 32);
    TUTTI_UNROLL
    for (int s = 1; s < N; ++s)
      if (N == 2 || static_cast<uint32_t>(s) < n)
        sum = apply<fold>(sum, as<T>(v[s][i] | static_cast<uint64_t>(v[s][i + 1]) << 32));
    uint64_t bits = as<uint64_t>(sum);
    out[i] = static_cast<uint32_t>(bits);
    out[i + 1] = static_cast<uint32_t>(bits >> 32);
  }
}

template <class M, bool brain>
TUTTI_KERNEL_FN float widen(uint32_t half) {
  return brain ? as<float>(half << 16) : M::half_to_float(static_cast<uint16_t>(half));
}
template <class M, bool brain>
TUTTI_KERNEL_FN uint32_t narrow(float value) {
  return brain ? M::float_to_bfloat(value) : M::float_to_half(value);
}

// 16-bit types, two a word.
template <class M, int Words, int N, Fold fold, bool brain>
TUTTI_KERNEL_FN void fold_halves(const uint32_t (&v)[N][Words], uint32_t n,
                                 uint32_t (&out)[Words]) {
  constexpr int32_t infinity = brain ? 0x7f800000 : 0x7c000000;
  TUTTI_UNROLL
  for (int i = 0; i < Words; ++i) {
    uint32_t word = 0;
    TUTTI_UNROLL
    for (int shift = 0; shift < 32; shift += 16) {
      if constexpr (fold == Fold::sum || fold == Fold::prod) {
        float sum = widen<M, brain>(v[0][i] >> shift & 0xffff);
        TUTTI_UNROLL
        for (int s = 1; s < N; ++s)
          if (N == 2 || static_cast<uint32_t>(s) < n)
            sum = apply<fold>(sum, widen<M, brain>(v[s][i] >> shift & 0xffff));
        word |= narrow<M, brain>(sum) << shift;
      } else {
        int32_t kept = static_cast<int32_t>(v[0][i] >> shift << 16);
        TUTTI_UNROLL
        for (int s = 1; s < N; ++s)
          if (N == 2 || static_cast<uint32_t>(s) < n)
            kept = extreme<fold>(kept, static_cast<int32_t>(v[s][i] >> shift << 16), infinity);
        word |= static_cast<uint32_t>(kept) >> 16 << shift;
      }
    }
    out[i] = word;
  }
}

// Units of two LL lines (6 words) are made for 8-byte types only, units of one line hold none of
// them: the code that a unit never needs is left out (it doubled the size of the kernels).
template <class M, int Words, int N, Fold fold>
TUTTI_KERNEL_FN void fold_elem(Elem elem, const uint32_t (&v)[N][Words], uint32_t n,
                               uint32_t (&out)[Words]) {
  constexpr bool arithmetic = fold == Fold::sum || fold == Fold::prod;
  if constexpr (Words % 6 != 0) switch (elem) {
      case Elem::f32:
        return fold_words<M, Words, N, fold, float>(v, n, out);
      case Elem::f16:
        return fold_halves<M, Words, N, fold, false>(v, n, out);
      case Elem::bf16:
        return fold_halves<M, Words, N, fold, true>(v, n, out);
      case Elem::i32:
        if constexpr (arithmetic) return fold_words<M, Words, N, fold, uint32_t>(v, n, out);
        return fold_words<M, Words, N, fold, int32_t>(v, n, out);
      case Elem::u32:
        return fold_words<M, Words, N, fold, uint32_t>(v, n, out);
      default:
        break;
    }
  if constexpr (Words % 2 == 0) switch (elem) {
      case Elem::f64:
        return fold_pairs<M, Words, N, fold, double>(v, n, out);
      case Elem::i64:
        if constexpr (arithmetic) return fold_pairs<M, Words, N, fold, uint64_t>(v, n, out);
        return fold_pairs<M, Words, N, fold, int64_t>(v, n, out);
      case Elem::u64:
        return fold_pairs<M, Words, N, fold, uint64_t>(v, n, out);
      default:
        break;
    }
}

// out = v[0] op v[1] op ... op v[n - 1]. One switch a call: with 12 or more bytes an operand its
// cost is hidden behind memory (gpu-lab section 6: <= 8 % on few SMs, nothing on many).
template <class M, int Words, int N>
TUTTI_KERNEL_FN void fold_ranks(uint32_t code, const uint32_t (&v)[N][Words], uint32_t n,
                                uint32_t (&out)[Words]) {
  Elem elem = static_cast<Elem>(code % elem_count);
  switch (static_cast<Fold>(code / elem_count)) {
    case Fold::sum:
      return fold_elem<M, Words, N, Fold::sum>(elem, v, n, out);
    case Fold::prod:
      return fold_elem<M, Words, N, Fold::prod>(elem, v, n, out);
    case Fold::min:
      return fold_elem<M, Words, N, Fold::min>(elem, v, n, out);
    case Fold::max:
      return fold_elem<M, Words, N, Fold::max>(elem, v, n, out);
  }
}

}  // namespace tutti::gpu
