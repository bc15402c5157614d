// A collective call as a Problem, for the comm room.
//
// begin() looks at what needs no communicator, finish() at the rest; both say whether the call can be
// tutti's. What they read is what the standard lets this rank look at, and what they find wrong is for the
// MPI below, which says it in its own words.
//
// Movements are in bytes. A buffer whose bytes stand in the order of its elements without gaps is used
// where it lies; any other is packed into host memory by pack() before the call and unpacked by Packing
// behind it. That is this rank's own affair: no path depends on it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/problem.hpp"
#include "mpi/buffers.hpp"
#include "mpi/handles.hpp"
#include "mpi/strip_cache.hpp"

namespace tutti::mpi {

// The collectives that can be tutti's have the same place in both lists.
constexpr bool is_coll(Call call) {
  return static_cast<size_t>(call) < coll_count;
}
constexpr Coll coll_of(Call call) {
  return static_cast<Coll>(call);
}
constexpr bool lists_agree() {
  for (size_t i = 0; i < coll_count; ++i)
    if (std::string_view(coll_names[i]) != call_names[i]) return false;
  return true;
}
static_assert(lists_agree());

enum class Begin : uint8_t {
  mine,
  other,    // nothing is wrong with it, but tutti has no name for it
  refused,  // as far as can be told the base is going to refuse it
};

// Problems start as copies of this. g++ clears an object of their size by `rep stos`, which took half of
// the time of a call on one rank; it copies one it cannot see through by plain vector moves.
extern Problem blank_problem;
[[gnu::always_inline]] inline Problem blank() {
  asm("" : "+m"(blank_problem));
  return blank_problem;
}

// Buffers that must not be one and are. What an MPI refuses is for it to say; what it lets pass works there
// as if in place, and so it does here. A rank may not go below by itself over it: of a block that is its own
// rank 0 alone sees two equal pointers.
// MPICH refuses all of it. Open MPI (4.1, all forms) refuses allreduce from two elements on, and reduce.
#ifdef MPICH_VERSION
constexpr bool refuses_equal_buffers = true;
#else
constexpr bool refuses_equal_buffers = false;
#endif
constexpr bool refuses_equal_buffers_of(Call call, int64_t count) {
  return refuses_equal_buffers ? count > 0 : call == Call::allreduce && count > 1;
}

// ---- What is packed: on a device by a kernel, into memory of the device while there is some, else into
// host memory; elsewhere by the MPI below.

class Packing {
 public:
  Packing() = default;
  Packing(const Packing&) = delete;
  Packing& operator=(const Packing&) = delete;
  ~Packing();

  // Adds a buffer of that many bytes; false when there is no memory for them. keep: the program may free
  // types and arrays before out().
  bool add(const void* buffer, const Blocks& blocks, Access access, size_t bytes, bool keep,
           std::byte** packed);
  Status in();
  // Behind a call that was tutti's. Both once a call.
  Status out();

 private:
  struct Block {
    int64_t count;
    ptrdiff_t offset;
    MPI_Datatype type;
    bool own_type;
  };
  struct Buffer {
    std::vector<Block> blocks;
    Access access = Access::read;
    std::byte* packed = nullptr;
    int host_copy = -1;  // its number among the copies
    // Of one on a device.
    std::shared_ptr<const DeviceStrips> strips;
    std::byte* program = nullptr;
    int32_t device = -1;
    bool on_device = false;  // the packed form too
  };
  bool add_on_device(Buffer& buffer, const void* program, const Blocks& blocks, size_t bytes);
  Status by_kernels(bool unpack);
  template <class Move>
  Status each(const Buffer& buffer, Move move);

  std::array<Buffer, 2> buffers_;
  int count_ = 0;
  HostCopies copies_;  // of those on a device, gaps and all
};

// ---- Drafts.

// Reductions without arrays, and the barrier: nothing but the Problem.
template <Call call>
class PlainDraft {
 public:
  Problem problem = blank();

  Begin begin(MPI_Comm) {
    problem.agreed.coll = coll_of(call);
    return Begin::mine;
  }
  template <class Count>
  [[gnu::always_inline]] Begin begin(const void* send, void* recv, Count count, MPI_Datatype type,
                                     MPI_Op op, MPI_Comm) {
    return take(send, recv, count, type, op);
  }
  template <class Count>
  Begin begin(const void* send, void* recv, Count count, MPI_Datatype type, MPI_Op op, int root,
              MPI_Comm) {
    problem.agreed.root = root;
    return take(send, recv, count, type, op);
  }

  template <class... Args>
  bool finish(const State& state, Args...) {
    return symmetric || look_at_ends(state);
  }
  Status reserve(bool) { return {}; }
  Status pack(bool) { return {}; }
  std::shared_ptr<Packing> packing() const { return nullptr; }

 private:
  bool look_at_ends(const State& state);

  // Both buffers are every rank's.
  static constexpr bool symmetric = call != Call::reduce && call != Call::exscan;

  static bool bad(const void* send, const void* recv, int64_t count) {
    if (!symmetric || count <= 0) return count < 0;
    if (recv == MPI_IN_PLACE) return true;
    if (send == nullptr || recv == nullptr) return true;
    return send == recv && refuses_equal_buffers_of(call, count);
  }

  template <class Count>
  [[gnu::always_inline]] Begin take(const void* send, void* recv, Count count, MPI_Datatype type,
                                    MPI_Op op) {
    if (!find_reduction(type, op, problem.agreed.dtype, problem.agreed.op)) {
      Reducible ignored;
      Op also_ignored;
      const bool predefined =
          handles.dtypes.find(type, ignored) && handles.ops.find(op, also_ignored);
      const bool null = type == MPI_DATATYPE_NULL || op == MPI_OP_NULL;
      return predefined || null || bad(send, recv, count) ? Begin::refused : Begin::other;
    }
    if (bad(send, recv, count)) return Begin::refused;
    const bool in_place = send == MPI_IN_PLACE;
    problem.agreed.coll = coll_of(call);
    problem.agreed.count = static_cast<uint64_t>(count);
    problem.local.in_place = in_place || (symmetric && send == recv);
    problem.local.send = in_place ? recv : send;
    problem.local.recv = recv;
    return Begin::mine;
  }
};

template <Call call>
bool PlainDraft<call>::look_at_ends(const State& state) {
  Local& local = problem.local;
  const int root = problem.agreed.root;
  if (call == Call::reduce && (root < 0 || root >= state.nranks())) return false;
  const bool receives = call == Call::reduce ? state.rank() == root : state.rank() != 0;
  if (call == Call::reduce && local.in_place && !receives) return false;
  // Refused by rank 0 too, which does not look at recv, or by no rank.
  if (call == Call::exscan && !local.in_place && local.send == local.recv) {
    if (refuses_equal_buffers && problem.agreed.count > 0) return false;
    local.in_place = receives;
  }
  // Elsewhere the receive buffer is not looked at.
  if (!receives && !local.in_place) local.recv = nullptr;
  if (local.recv == MPI_IN_PLACE) return false;
  if (problem.agreed.count == 0) return true;
  if (local.send == nullptr || (receives && local.recv == nullptr)) return false;
  return local.in_place || local.send != local.recv || call == Call::exscan;
}

// Numbers of all ranks: on the stack where these are few.
class RankNumbers {
 public:
  uint64_t* take(int n) {
    const auto size = static_cast<size_t>(n);
    if (size > few_.size()) many_.resize(size);
    first_ = size > few_.size() ? many_.data() : few_.data();
    size_ = size;
    return first_;
  }
  uint64_t operator[](int i) const { return first_[i]; }
  std::span<const uint64_t> span() const { return {first_, size_}; }

 private:
  std::array<uint64_t, 32> few_;  // not initialised: it is written before it is read
  std::vector<uint64_t> many_;
  uint64_t* first_ = nullptr;
  size_t size_ = 0;
};

// One buffer argument in bytes.
class Side {
 public:
  void set(const void* buffer, const Blocks& blocks, Access access);
  // This rank's call does not look at it, but for MPI_IN_PLACE.
  void set_unused(const void* buffer);
  bool in_place() const { return in_place_; }
  // Sizes and places of the blocks; false for arguments that the base refuses.
  bool measure();

  uint64_t bytes() const { return bytes_; }
  int blocks() const { return blocks_.n; }
  uint64_t bytes_of(int block) const { return several_ ? counts_[block] : bytes_; }
  bool direct() const { return direct_; }
  // Where the bytes are: the program's memory, or a copy.
  void* memory() const { return memory_; }
  std::span<const uint64_t> counts() const { return counts_.span(); }
  // Empty: one block behind the other.
  std::span<const uint64_t> displs() const;
  const void* program() const { return buffer_; }
  // Of direct ones: from the first byte of all.
  uint64_t displ_of(int block) const { return several_ ? displs_[block] : 0; }
  bool pack(Packing& packing, bool keep);
  void take_in_place() {
    in_place_ = true;
    memory_ = nullptr;
    bytes_ = 0;
  }

 private:
  const void* buffer_ = nullptr;
  Blocks blocks_;
  Access access_ = Access::read;
  bool in_place_ = false;
  bool unused_ = false;
  bool several_ = false;
  bool direct_ = true;
  uint64_t bytes_ = 0;
  std::byte* memory_ = nullptr;
  RankNumbers counts_;
  RankNumbers displs_;
};

// Reduce_scatter, whose blocks have counts, and all movements.
class LongDraft {
 public:
  Problem problem = blank();

  // For describe() of buffers.hpp.
  int add(const void* buffer, const Blocks& blocks, Access access);
  int add_unused(const void* buffer);

  Begin begin_reduction(MPI_Datatype type, MPI_Op op);
  template <class Count>
  bool finish_reduction(const State& state, const void* send, void* recv, const Count* counts) {
    if (counts == nullptr) return false;
    uint64_t* to = counts_.take(state.nranks());
    for (int i = 0; i < state.nranks(); ++i) {
      if (counts[i] < 0) return false;
      to[i] = static_cast<uint64_t>(counts[i]);
    }
    return reduce_blocks(state, send, recv);
  }
  // After the sides were added.
  bool finish_movement(Coll coll, const State& state, int root);

  // Room for what has to be packed. A failure is in the Problem then, for the peers too. keep: as in
  // Packing.
  Status reserve(bool keep);
  // The same, and packs.
  Status pack(bool keep);
  std::shared_ptr<Packing> packing() const { return packing_; }

 private:
  bool reduce_blocks(const State& state, const void* send, void* recv);
  bool movement(Coll coll, int rank, int nranks, int root);
  bool overlaps_itself(Coll coll, int rank) const;
  bool allow_overlap(Coll coll, int rank);
  void place();

  std::array<Side, 2> sides_;
  int nsides_ = 0;
  RankNumbers counts_;
  std::shared_ptr<Packing> packing_;
};

template <Call call>
class ArrayDraft : public LongDraft {
 public:
  template <class... Args>
  Begin begin(Args... args) {
    if constexpr (call == Call::reduce_scatter) {
      return [&](const void*, void*, auto, MPI_Datatype type, MPI_Op op, MPI_Comm) {
        return begin_reduction(type, op);
      }(args...);
    } else {
      return Begin::mine;
    }
  }
  template <class... Args>
  bool finish(const State& state, Args... args) {
    if constexpr (call == Call::reduce_scatter) {
      return [&](const void* send, void* recv, auto counts, MPI_Datatype, MPI_Op, MPI_Comm) {
        return finish_reduction(state, send, recv, counts);
      }(args...);
    } else {
      Ends ends;
      ends.rank = state.rank();
      ends.local = ends.peers = state.nranks();
      ends.comm = state.handle();
      int root = 0;
      if constexpr (call == Call::bcast || call == Call::gather || call == Call::gatherv ||
                    call == Call::scatter || call == Call::scatterv)
        root = std::get<sizeof...(Args) - 2>(std::make_tuple(args...));
      if (root < 0 || root >= state.nranks()) return false;
      describe(Of<call>(), static_cast<LongDraft&>(*this), ends, args...);
      return finish_movement(coll_of(call), state, root);
    }
  }
};

constexpr bool is_plain(Call call) {
  return call == Call::allreduce || call == Call::reduce || call == Call::scan ||
         call == Call::exscan || call == Call::reduce_scatter_block || call == Call::barrier;
}

}  // namespace tutti::mpi
