#include "mpi/handles.hpp"

#include <optional>

#include "base/log.hpp"
#include "mpi/below.hpp"

#ifdef MPIX_C_FLOAT16
// Where the MPI of the process lacks it, check_pairing() is to say so, and not the loader.
#pragma weak ompi_mpi_short_float
#endif

namespace tutti::mpi {

Handles handles;

namespace {

std::optional<Dtype> sized(size_t bytes, DtypeClass cls) {
  for (size_t i = 0; i < dtype_count; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    // Of two reals of one size the first is meant: bf16 and f80 have handles of their own.
    if (dtype_table[i].cls == cls && dtype_table[i].bytes == bytes) return dtype;
  }
  return std::nullopt;
}

struct Layout {
  int size = 0;
  MPI_Aint extent = 0;
};

bool layout_of(MPI_Datatype handle, Layout& layout) {
  MPI_Aint lower = 0;
  return below.Type_size(handle, &layout.size) == MPI_SUCCESS &&
         below.Type_get_extent(handle, &lower, &layout.extent) == MPI_SUCCESS && lower == 0;
}

// logical: whether LAND, LOR, LXOR are defined on it if on its class; of integers only on C's.
uint16_t valid_ops(Dtype dtype, bool logical) {
  uint16_t mask = 0;
  for (size_t i = 0; i < op_count; ++i) {
    const auto op = static_cast<Op>(i);
    const bool is_logical = op == Op::land || op == Op::lor || op == Op::lxor;
    if (op_valid(op, dtype) && (logical || !is_logical)) mask |= static_cast<uint16_t>(1u << i);
  }
  return mask;
}

void add_dtype(MPI_Datatype handle, const char* text, Dtype dtype, bool logical,
               const Layout& layout) {
  if (static_cast<uint32_t>(layout.size) != info(dtype).bytes ||
      static_cast<uint32_t>(layout.extent) != info(dtype).extent) {
    TUTTI_DEBUG("mpi", "{} is left to the MPI below: size {} extent {} instead of {} {}", text,
                layout.size, layout.extent, info(dtype).bytes, info(dtype).extent);
    return;
  }
  handles.dtypes.add(handle, {dtype, valid_ops(dtype, logical)});
}

void add_sized(MPI_Datatype handle, const char* text, DtypeClass cls, bool logical = true) {
  Layout layout;
  if (handle == MPI_DATATYPE_NULL || !layout_of(handle, layout)) return;
  if (std::optional<Dtype> dtype = sized(static_cast<size_t>(layout.size), cls))
    add_dtype(handle, text, *dtype, logical, layout);
}

void add_fixed(MPI_Datatype handle, const char* text, Dtype dtype) {
  Layout layout;
  if (handle == MPI_DATATYPE_NULL || !layout_of(handle, layout)) return;
  add_dtype(handle, text, dtype, true, layout);
}

void open_ops() {
  const struct {
    MPI_Op handle;
    Op op;
  } known[] = {{MPI_SUM, Op::sum},   {MPI_PROD, Op::prod},     {MPI_MIN, Op::min},
               {MPI_MAX, Op::max},   {MPI_LAND, Op::land},     {MPI_LOR, Op::lor},
               {MPI_LXOR, Op::lxor}, {MPI_BAND, Op::band},     {MPI_BOR, Op::bor},
               {MPI_BXOR, Op::bxor}, {MPI_MINLOC, Op::minloc}, {MPI_MAXLOC, Op::maxloc}};
  for (const auto& row : known) handles.ops.add(row.handle, row.op);
}

}  // namespace

void open_handles() {
#define TUTTI_MPI_INTEGER(handle) add_sized(handle, #handle, DtypeClass::sint);
#define TUTTI_MPI_NUMBER(handle) add_sized(handle, #handle, DtypeClass::sint, false);
#define TUTTI_MPI_UNSIGNED(handle) add_sized(handle, #handle, DtypeClass::uint);
#define TUTTI_MPI_LOGICAL(handle) add_sized(handle, #handle, DtypeClass::logical);
#define TUTTI_MPI_REAL(handle) add_sized(handle, #handle, DtypeClass::real);
#define TUTTI_MPI_COMPLEX(handle) add_sized(handle, #handle, DtypeClass::cplx);
#define TUTTI_MPI_DTYPE(handle, dtype) add_fixed(handle, #handle, Dtype::dtype);
#include "mpi/dtypes.def"
#undef TUTTI_MPI_INTEGER
#undef TUTTI_MPI_NUMBER
#undef TUTTI_MPI_UNSIGNED
#undef TUTTI_MPI_LOGICAL
#undef TUTTI_MPI_REAL
#undef TUTTI_MPI_COMPLEX
#undef TUTTI_MPI_DTYPE
  open_ops();
}

}  // namespace tutti::mpi
