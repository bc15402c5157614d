// MPI handles to core values and back.
//
// A handle is an address (Open MPI) or a number (MPICH). The predefined ones that tutti can reduce
// are put into a small table at MPI_Init; what is not there (derived types, characters,
// user-defined operations, nonsense) is for the MPI below, which also says what is wrong with it.
// Predefined operations are defined on predefined types only (MPI-4.0 section 6.9.2), so no derived
// type is looked into.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "core/types.hpp"
#include "mpi/features.hpp"

namespace tutti::mpi {

template <class Handle>
uint64_t bits(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>)
    return reinterpret_cast<uintptr_t>(handle);
  else
    return static_cast<std::make_unsigned_t<Handle>>(handle);
}

// Handle -> enumerator. Written by one thread before any reads. Open addressing over 256 places, at
// most a quarter of them taken, so that a look-up is one probe nearly always.
template <class Value>
class HandleTable {
 public:
  // The first value of a handle stays: MPIs give one handle to several names.
  template <class Handle>
  void add(Handle handle, Value value) {
    for (size_t at = place(bits(handle));; at = (at + 1) % size) {
      if (entries_[at].taken && entries_[at].key == bits(handle)) return;
      if (entries_[at].taken) continue;
      entries_[at] = {bits(handle), value, true};
      ++taken_;
      return;
    }
  }

  template <class Handle>
  bool find(Handle handle, Value& value) const {
    for (size_t at = place(bits(handle)); entries_[at].taken; at = (at + 1) % size) {
      if (entries_[at].key != bits(handle)) continue;
      value = entries_[at].value;
      return true;
    }
    return false;
  }

  size_t count() const { return taken_; }

 private:
  static constexpr size_t size = 256;
  struct Entry {
    uint64_t key = 0;
    Value value{};
    bool taken = false;
  };
  // Fibonacci hashing: the top bits of a product with 2^64 / golden ratio.
  static size_t place(uint64_t key) { return (key * 0x9e3779b97f4a7c15u) >> 56; }

  std::array<Entry, size> entries_{};
  size_t taken_ = 0;
};

// A predefined datatype: the core type, and the predefined operations that MPI defines on it, a bit
// each. What an MPI accepts beyond the standard is left to it.
struct Reducible {
  Dtype dtype;
  uint16_t ops;
};

struct Handles {
  HandleTable<Reducible> dtypes;
  HandleTable<Op> ops;
};
extern Handles handles;

// Whether tutti knows the operation on the type, and their core values if so.
inline bool find_reduction(MPI_Datatype datatype, MPI_Op op, Dtype& dtype, Op& core_op) {
  Reducible reducible;
  if (!handles.dtypes.find(datatype, reducible) || !handles.ops.find(op, core_op)) return false;
  dtype = reducible.dtype;
  return (reducible.ops >> static_cast<int>(core_op) & 1) != 0;
}

// Fills the tables; needs an MPI that is initialised. A type whose size or extent is not what
// types.def says is left out, with a message at debug.
void open_handles();

}  // namespace tutti::mpi
