#include "engine/widening.hpp"

#include <bit>
#include <cmath>
#include <cstring>

namespace tutti {

namespace {

constexpr uint32_t infinity_bits = 0x7f800000;

float widen_bf16(uint16_t narrow) {
  return std::bit_cast<float>(static_cast<uint32_t>(narrow) << 16);
}

uint16_t narrow_bf16(float wide) {
  const auto bits = std::bit_cast<uint32_t>(wide);
  if ((bits & ~(uint32_t{1} << 31)) > infinity_bits)
    return static_cast<uint16_t>(bits >> 16 | 0x40);  // NaN stays one
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Exponents of f16 begin 112 below those of f32.
constexpr uint32_t rebias = uint32_t{112} << 23;

float widen_f16(uint16_t narrow) {
  const uint32_t sign = static_cast<uint32_t>(narrow & 0x8000) << 16;
  const uint32_t exponent = narrow >> 10 & 31, mantissa = narrow & 0x3ff;
  if (exponent == 0)
    return std::bit_cast<float>(
        sign | std::bit_cast<uint32_t>(std::ldexp(static_cast<float>(mantissa), -24)));
  const uint32_t magnitude = (exponent << 23 | mantissa << 13) + rebias;
  return std::bit_cast<float>(sign | (exponent == 31 ? infinity_bits | mantissa << 13 : magnitude));
}

uint16_t narrow_f16(float wide) {
  const auto bits = std::bit_cast<uint32_t>(wide);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t size = bits & ~(uint32_t{1} << 31);
  uint32_t half = 0;
  if (size > infinity_bits)
    half = 0x7e00;
  else if (size >= 0x477ff000)  // half-way from 65504 to what would be 65536
    half = 0x7c00;
  else if (size >= 0x38800000)  // 2^-14, the least normal one
    half = (size - rebias + 0xfff + (size >> 13 & 1)) >> 13;
  else
    // The last bit of floats from 0.5 on is worth 2^-24, as that of f16 denormals: the sum rounds.
    half =
        std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  return static_cast<uint16_t>(sign | half);
}

template <float (*convert)(uint16_t)>
void widen_all(void* to, const void* from, size_t count) {
  auto* wide = static_cast<float*>(to);
  const auto* bytes = static_cast<const char*>(from);
  for (size_t i = 0; i < count; ++i) {
    uint16_t narrow;  // the caller's buffer may lie anywhere
    std::memcpy(&narrow, bytes + i * sizeof narrow, sizeof narrow);
    wide[i] = convert(narrow);
  }
}

template <uint16_t (*convert)(float)>
void narrow_all(void* to, const void* from, size_t count) {
  const auto* wide = static_cast<const float*>(from);
  auto* bytes = static_cast<char*>(to);
  for (size_t i = 0; i < count; ++i) {
    const uint16_t narrow = convert(wide[i]);
    std::memcpy(bytes + i * sizeof narrow, &narrow, sizeof narrow);
  }
}

template <bool product>
void reduce_all(const Reduction&, void* to, const void* lower, const void* higher, size_t count) {
  auto* sum = static_cast<float*>(to);
  const auto* a = static_cast<const float*>(lower);
  const auto* b = static_cast<const float*>(higher);
  for (size_t i = 0; i < count; ++i) sum[i] = product ? a[i] * b[i] : a[i] + b[i];
}

}  // namespace

float to_f32(Dtype dtype, uint16_t narrow) {
  return dtype == Dtype::bf16 ? widen_bf16(narrow) : widen_f16(narrow);
}

uint16_t from_f32(Dtype dtype, float wide) {
  return dtype == Dtype::bf16 ? narrow_bf16(wide) : narrow_f16(wide);
}

Widening wide_arithmetic(Op op, Dtype dtype) {
  Widening wide;
  wide.reduction.function = op == Op::prod ? reduce_all<true> : reduce_all<false>;
  wide.reduction.op = op;
  wide.reduction.dtype = Dtype::f32;
  const bool brain = dtype == Dtype::bf16;
  wide.widen = brain ? widen_all<widen_bf16> : widen_all<widen_f16>;
  wide.narrow = brain ? narrow_all<narrow_bf16> : narrow_all<narrow_f16>;
  return wide;
}

}  // namespace tutti
