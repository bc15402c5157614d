// Which (operation, type) pairs the kernels reduce, and the code by which a kernel knows a pair.
#pragma once

#include <cstdint>
#include <optional>

#include "core/types.hpp"

namespace tutti::gpu {

// Element kinds that the kernels tell apart. Sum and product of signed and unsigned integers are
// one machine operation, so they share a code.
enum class Elem : uint8_t { f32, f64, f16, bf16, i32, i64, u32, u64 };
enum class Fold : uint8_t { sum, prod, min, max };
inline constexpr uint32_t elem_count = 8;

constexpr uint32_t make_code(Fold fold, Elem elem) {
  return static_cast<uint32_t>(fold) * elem_count + static_cast<uint32_t>(elem);
}

constexpr std::optional<Elem> find_elem(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return Elem::f32;
    case Dtype::f64:
      return Elem::f64;
    case Dtype::f16:
      return Elem::f16;
    case Dtype::bf16:
      return Elem::bf16;
    case Dtype::i32:
      return Elem::i32;
    case Dtype::i64:
      return Elem::i64;
    case Dtype::u32:
      return Elem::u32;
    case Dtype::u64:
      return Elem::u64;
    default:
      return std::nullopt;
  }
}

constexpr std::optional<Fold> find_fold(Op op) {
  switch (op) {
    case Op::sum:
      return Fold::sum;
    case Op::prod:
      return Fold::prod;
    case Op::min:
      return Fold::min;
    case Op::max:
      return Fold::max;
    default:
      return std::nullopt;
  }
}

// nullopt: no kernel reduces the pair.
constexpr std::optional<uint32_t> reduction_code(Op op, Dtype dtype) {
  std::optional<Elem> elem = find_elem(dtype);
  std::optional<Fold> fold = find_fold(op);
  if (!elem || !fold) return std::nullopt;
  if (*fold == Fold::sum || *fold == Fold::prod) {
    if (*elem == Elem::u32) elem = Elem::i32;
    if (*elem == Elem::u64) elem = Elem::i64;
  }
  return make_code(*fold, *elem);
}

}  // namespace tutti::gpu
