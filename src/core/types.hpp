// Datatypes, operations and collectives as plain values, expanded from types.def.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

enum class Dtype : uint8_t {
#define TUTTI_DTYPE(name, bytes, extent, cls) name,
#include "core/types.def"
#undef TUTTI_DTYPE
};

enum class Op : uint8_t {
#define TUTTI_OP(name) name,
#include "core/types.def"
#undef TUTTI_OP
};

enum class Coll : uint8_t {
#define TUTTI_COLL(name) name,
#include "core/types.def"
#undef TUTTI_COLL
};

enum class DtypeClass : uint8_t { sint, uint, real, cplx, logical, byte, pair };

struct DtypeInfo {
  const char* name;
  uint32_t bytes;   // data bytes an element
  uint32_t extent;  // distance in memory between elements
  DtypeClass cls;
};

inline constexpr DtypeInfo dtype_table[] = {
#define TUTTI_DTYPE(name, bytes, extent, cls) {#name, bytes, extent, DtypeClass::cls},
#include "core/types.def"
#undef TUTTI_DTYPE
};
inline constexpr size_t dtype_count = sizeof(dtype_table) / sizeof(dtype_table[0]);

inline constexpr const char* op_names[] = {
#define TUTTI_OP(name) #name,
#include "core/types.def"
#undef TUTTI_OP
};
inline constexpr size_t op_count = sizeof(op_names) / sizeof(op_names[0]);

inline constexpr const char* coll_names[] = {
#define TUTTI_COLL(name) #name,
#include "core/types.def"
#undef TUTTI_COLL
};
inline constexpr size_t coll_count = sizeof(coll_names) / sizeof(coll_names[0]);

constexpr const DtypeInfo& info(Dtype dtype) {
  return dtype_table[static_cast<size_t>(dtype)];
}
constexpr const char* name(Dtype dtype) {
  return info(dtype).name;
}
constexpr const char* name(Op op) {
  return op_names[static_cast<size_t>(op)];
}
constexpr const char* name(Coll coll) {
  return coll_names[static_cast<size_t>(coll)];
}

std::optional<Dtype> find_dtype(std::string_view name);
std::optional<Op> find_op(std::string_view name);
std::optional<Coll> find_coll(std::string_view name);

// Whether MPI defines the operation on the type (MPI-4.0 section 6.9.2); `user` never is here.
constexpr bool op_valid(Op op, Dtype dtype) {
  const DtypeClass cls = info(dtype).cls;
  const bool integer = cls == DtypeClass::sint || cls == DtypeClass::uint;
  switch (op) {
    case Op::sum:
    case Op::prod:
      return integer || cls == DtypeClass::real || cls == DtypeClass::cplx;
    case Op::min:
    case Op::max:
      return integer || cls == DtypeClass::real;
    case Op::land:
    case Op::lor:
    case Op::lxor:
      return integer || cls == DtypeClass::logical;
    case Op::band:
    case Op::bor:
    case Op::bxor:
      return integer || cls == DtypeClass::byte;
    case Op::minloc:
    case Op::maxloc:
      return cls == DtypeClass::pair;
    case Op::user:
      return false;
  }
  return false;
}

// Whether partial results lose digits in the type itself and not in fp32.
constexpr bool gains_by_fp32(Op op, Dtype dtype) {
  return (op == Op::sum || op == Op::prod) && (dtype == Dtype::f16 || dtype == Dtype::bf16);
}

}  // namespace tutti
