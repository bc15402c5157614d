// What a device collective must give, worked out on the CPU with other code than the kernels':
// random inputs that every rank can make for every rank, and the fold of them in rank order.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/problem.hpp"

namespace tutti::testing {

inline uint64_t mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

struct Random {
  uint64_t state;
  uint64_t next() { return state = mix(state); }
  uint64_t below(uint64_t n) { return next() % n; }
};

// IEEE half and bfloat16 by arithmetic on doubles: exact to widen, one rounding to narrow.
struct Format16 {
  int fraction_bits;  // 10, 7
  int exponent_min;   // of the smallest normal: -14, -126
  int exponent_max;   // 15, 127
};
inline constexpr Format16 half_format{10, -14, 15};
inline constexpr Format16 brain_format{7, -126, 127};

inline double widen16(Format16 f, uint16_t bits) {
  const int exponent_bits = 15 - f.fraction_bits;
  const int exponent = bits >> f.fraction_bits & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << f.fraction_bits) - 1);
  double value;
  if (exponent == (1 << exponent_bits) - 1)
    value = fraction ? NAN : INFINITY;
  else if (exponent == 0)
    value = std::ldexp(fraction, f.exponent_min - f.fraction_bits);
  else
    value = std::ldexp(fraction + (1 << f.fraction_bits),
                       exponent - 1 + f.exponent_min - f.fraction_bits);
  return bits & 0x8000 ? -value : value;
}

inline uint16_t narrow16(Format16 f, double value) {
  if (std::isnan(value)) return 0x7fff;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  value = std::fabs(value);
  const uint16_t infinity =
      static_cast<uint16_t>(((1 << (15 - f.fraction_bits)) - 1) << f.fraction_bits);
  if (std::isinf(value)) return sign | infinity;
  int exponent = f.exponent_min;
  if (value > 0) {
    int e;
    std::frexp(value, &e);
    if (e - 1 > exponent) exponent = e - 1;
  }
  const double units =
      std::nearbyint(std::ldexp(value, f.fraction_bits - exponent));  // half to even
  // Units run over into the exponent by themselves: 2^fraction_bits is the next binade.
  const double whole =
      units + static_cast<double>((static_cast<int64_t>(exponent - f.exponent_min)) *
                                  (int64_t{1} << f.fraction_bits));
  if (whole >= infinity) return sign | infinity;
  return sign | static_cast<uint16_t>(whole);
}

// One element of an input: the bits of a value that suits the operation.
inline uint64_t input_bits(Dtype dtype, Op op, uint64_t seed, int rank, uint64_t index) {
  const uint64_t h = mix(seed ^ mix(static_cast<uint64_t>(rank) * 0x51ed2701 + index));
  const DtypeInfo& type = info(dtype);
  const bool compares = op == Op::min || op == Op::max;
  if (type.cls != DtypeClass::real) return h;
  double value = static_cast<double>(static_cast<int64_t>(h >> 11) - (int64_t{1} << 52)) * 0x1p-51;
  if (op == Op::prod) value = (value < 0 ? -1 : 1) * (0.75 + std::fabs(value) / 4);
  if (compares) switch (h % 61) {
      case 0:
        value = 0.0;
        break;
      case 1:
        value = -0.0;
        break;
      case 3:
        value = INFINITY;
        break;
      default:
        break;
    }
  // NaNs of any sign and payload: min and max hand the bits on.
  if (compares && h % 61 == 2) switch (dtype) {
      case Dtype::f16:
        return 0x7e00 | (h >> 20 & 0x81ff);
      case Dtype::bf16:
        return 0x7fc0 | (h >> 20 & 0x803f);
      case Dtype::f32:
        return 0x7fc00000 | (h >> 20 & 0x803fffff);
      default:
        return uint64_t{0x7ff8} << 48 | (h & 0x8007ffffffffffff);
    }
  switch (dtype) {
    case Dtype::f16:
      return narrow16(half_format, value);
    case Dtype::bf16:
      return narrow16(brain_format, value);
    case Dtype::f32: {
      float narrow = static_cast<float>(value);
      uint32_t bits;
      std::memcpy(&bits, &narrow, 4);
      return bits;
    }
    default: {
      uint64_t bits;
      std::memcpy(&bits, &value, 8);
      return bits;
    }
  }
}

// Whether min or max keeps a, of the lower rank: a NaN before a number, -0.0 before +0.0.
template <class T>
bool keeps_first(Op op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return true;
    if (std::isnan(b)) return false;
    if (a == b) return std::signbit(a) == std::signbit(b) || std::signbit(a) == (op == Op::min);
  }
  return op == Op::min ? a <= b : a >= b;
}

template <class T>
T reduce_one(Op op, T a, T b) {
  switch (op) {
    case Op::sum:
      return a + b;
    case Op::prod:
      return a * b;
    default:
      return keeps_first(op, a, b) ? a : b;
  }
}

template <class T, class Wrap = T>
uint64_t fold_as(Op op, const std::vector<uint64_t>& bits) {
  const bool arithmetic = op == Op::sum || op == Op::prod;
  T sum;
  std::memcpy(&sum, &bits[0], sizeof sum);
  for (size_t r = 1; r < bits.size(); ++r) {
    T next;
    std::memcpy(&next, &bits[r], sizeof next);
    sum =
        arithmetic
            ? static_cast<T>(reduce_one<Wrap>(op, static_cast<Wrap>(sum), static_cast<Wrap>(next)))
            : reduce_one<T>(op, sum, next);
  }
  uint64_t result = 0;
  std::memcpy(&result, &sum, sizeof sum);
  return result;
}

inline uint64_t fold_16(Format16 f, Op op, const std::vector<uint64_t>& bits) {
  if (op == Op::min || op == Op::max) {
    uint64_t kept = bits[0];
    for (size_t r = 1; r < bits.size(); ++r) {
      double a = widen16(f, static_cast<uint16_t>(kept)),
             b = widen16(f, static_cast<uint16_t>(bits[r]));
      if (!keeps_first(op, a, b)) kept = bits[r];
    }
    return kept;
  }
  float sum = static_cast<float>(widen16(f, static_cast<uint16_t>(bits[0])));
  for (size_t r = 1; r < bits.size(); ++r)
    sum = reduce_one(op, sum, static_cast<float>(widen16(f, static_cast<uint16_t>(bits[r]))));
  return narrow16(f, sum);
}

// The fold of one element over all ranks, in rank order.
inline uint64_t folded_bits(Dtype dtype, Op op, const std::vector<uint64_t>& bits) {
  switch (dtype) {
    case Dtype::f32:
      return fold_as<float>(op, bits);
    case Dtype::f64:
      return fold_as<double>(op, bits);
    case Dtype::f16:
      return fold_16(half_format, op, bits);
    case Dtype::bf16:
      return fold_16(brain_format, op, bits);
    case Dtype::i32:
      return fold_as<int32_t, uint32_t>(op, bits);
    case Dtype::i64:
      return fold_as<int64_t, uint64_t>(op, bits);
    case Dtype::u32:
      return fold_as<uint32_t>(op, bits);
    default:
      return fold_as<uint64_t>(op, bits);
  }
}

inline uint64_t read_bits(const uint8_t* at, size_t bytes) {
  uint64_t bits = 0;
  std::memcpy(&bits, at, bytes);
  return bits;
}

}  // namespace tutti::testing
