// Reductions of host memory: every operation on every type that MPI defines, at memory speed.
//
// Buffers need no alignment beyond the byte. Nothing is allocated, locked or logged. Threads: any.
//
// Rules that make results the same on all ranks, in all CPU variants, and in every split of the
// work (law 5); test/shm/reduce_test.cc holds each of them:
//   order    Parts are combined in rank order, op(op(part 0, part 1), part 2) and so on.
//   16 bits  f16 and bf16 sums and products accumulate in fp32 and round once, to nearest even.
//   NaN      In MIN and MAX a NaN wins over every number; of several, the lowest rank's, bit for
//   bit. So
//            a NaN of any rank shows on all. In MINLOC and MAXLOC likewise; of several NaNs the one
//            with the lower index.
//            A sum or product of two NaNs is the lower rank's.
//   zero     In MIN and MAX -0.0 is less than +0.0; in MINLOC and MAXLOC they are equal, and the
//   index
//            decides.
//   logical  Whatever is not zero is true; the result is 0 or 1.
//   complex  A product is (ac - bd, ad + bc), each product rounded (no fused multiply-add, which a
//   CPU
//            may lack), without C's recovery of infinities from NaN: as Fortran and CUDA do.
//   padding  Bytes of an element that hold no data (in pairs, behind an f80) are neither read nor
//            written.
// Sums and products of floating types follow the caller's rounding and denormal modes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/types.hpp"

namespace tutti::shm {

// One (operation, type), resolved once so that hot paths skip the dispatch. Values are constant for
// the life of the process.
class Reducer {
 public:
  using Two = void (*)(void* to, const void* lower, const void* higher, size_t units);
  using Many = void (*)(void* to, const void* const* parts, int nparts, size_t units);

  constexpr Reducer() = default;
  constexpr Reducer(Two two, Many many, uint32_t units) : two_(two), many_(many), units_(units) {}

  // to[i] = op(lower[i], higher[i]). `to` may equal either input; no other overlap.
  void two(void* to, const void* lower, const void* higher, size_t count) const {
    two_(to, lower, higher, count * units_);
  }
  // to[i] = op over parts[0][i], parts[1][i], ... with nparts >= 1. `to` may equal any part; no
  // other overlap with it. Each byte of a part is read once. One part alone is copied as it is.
  void many(void* to, const void* const* parts, int nparts, size_t count) const {
    many_(to, parts, nparts, count * units_);
  }
  constexpr bool valid() const { return two_ != nullptr; }

 private:
  Two two_ = nullptr;
  Many many_ = nullptr;
  uint32_t units_ = 0;  // what the functions count, per element: 2 for the parts of a complex sum
};

// op_valid, less what this CPU's C++ has no type for (f80 where long double is not 80 bits wide).
bool reducible(Op op, Dtype dtype);
// nullptr where not reducible.
const Reducer* find_reducer(Op op, Dtype dtype);

// The same by name, for callers that are not hot. The pair must be reducible.
void reduce2(Op op, Dtype dtype, void* to, const void* lower, const void* higher, size_t count);
void reduce_n(Op op, Dtype dtype, void* to, const void* const* parts, int nparts, size_t count);

// CPU variants. The best that this CPU has is chosen at the first use; all give the same bits.
enum class Variant : uint8_t { generic, avx2, avx512 };
inline constexpr Variant variants[] = {Variant::generic, Variant::avx2, Variant::avx512};
const char* name(Variant variant);
// Whether it was built in, and CPU and operating system can run it.
bool supported(Variant variant);
Variant active_variant();
// For tests and benchmarks: makes find_reducer answer from a supported variant from now on.
void force_variant(Variant variant);

}  // namespace tutti::shm
