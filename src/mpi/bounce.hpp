// Calls of the MPI below on device memory: a buffer that the CPU may not touch is replaced by a
// host copy. The sequence of calls below is the same as on a rank whose buffers are host memory, so
// each rank does this by itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "comm/memory.hpp"
#include "engine/operation.hpp"
#include "mpi/below.hpp"
#include "mpi/counters.hpp"
#include "mpi/layout.hpp"
#include "mpi/requests.hpp"

namespace tutti::mpi {

// Where a call reads and writes.
enum class Access : uint8_t { read, write, read_write };

// An array of counts or displacements in the type of either form; null: none.
class Numbers {
 public:
  Numbers() = default;
  template <class T>
  explicit Numbers(const T* first) : first_(first), bytes_(sizeof(T)) {}
  explicit operator bool() const { return first_ != nullptr; }
  int64_t operator[](int i) const {
    int32_t narrow = 0;
    int64_t wide = 0;
    if (bytes_ == sizeof narrow)
      std::memcpy(&narrow, static_cast<const char*>(first_) + bytes_ * static_cast<size_t>(i),
                  sizeof narrow);
    else
      std::memcpy(&wide, static_cast<const char*>(first_) + bytes_ * static_cast<size_t>(i),
                  sizeof wide);
    return bytes_ == sizeof narrow ? narrow : wide;
  }

 private:
  const void* first_ = nullptr;
  size_t bytes_ = 0;
};

// The elements that a call touches of one buffer argument.
struct Blocks {
  int n = 1;
  int64_t count = 0;  // of one block
  Numbers counts;     // of several
  Numbers displs;     // in extents of the type; with several types in bytes
  MPI_Datatype type = MPI_DATATYPE_NULL;
  const MPI_Datatype* types = nullptr;

  int64_t count_of(int i) const { return counts ? counts[i] : count; }
  MPI_Datatype type_of(int i) const { return types != nullptr ? types[i] : type; }
};
inline Blocks run_of(int64_t count, MPI_Datatype type) {
  Blocks blocks;
  blocks.count = count;
  blocks.type = type;
  return blocks;
}
template <class Count, class Displ>
Blocks blocks_of(int n, const Count* counts, const Displ* displs, MPI_Datatype type) {
  Blocks blocks;
  blocks.n = counts == nullptr || displs == nullptr ? 0 : n;
  blocks.counts = Numbers(counts);
  blocks.displs = Numbers(displs);
  blocks.type = type;
  return blocks;
}
template <class Count, class Displ>
Blocks blocks_of(int n, const Count* counts, const Displ* displs, const MPI_Datatype* types) {
  Blocks blocks = blocks_of(types == nullptr ? 0 : n, counts, displs, MPI_DATATYPE_NULL);
  blocks.types = types;
  return blocks;
}

// The lowest touched byte of the first block that has any; all others are in its memory, but for
// MPI_BOTTOM. False if there is none.
bool first_byte(const std::byte* program, const Blocks& blocks, const void** pointer);

// The buffers of one call. add() each, then host() is what the base is given. What add() is given
// stays until copy_in().
class HostCopies {
 public:
  HostCopies() = default;
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;
  ~HostCopies();

  // `buffer` may be MPI_IN_PLACE, MPI_BOTTOM or null. Returns its index.
  int add(const void* buffer, const Blocks& blocks, Access access);
  // A buffer that this rank's call does not look at.
  // On a device the base is given null for it: MPICH 4.0 writes to the receive buffer of a Reduce on ranks where
  // it means nothing.
  int add_unused(const void* buffer);
  // Looks where the buffers lie; true if one needs a copy. One query of the driver, but for
  // MPI_BOTTOM.
  bool needed();
  // Makes the copies: host() is good from then on. no_memory, or nothing.
  Status make();
  // Makes the copies if that has not been done, and fills those that are read, each time anew. On
  // failure, except for no_memory, the host pointers are still good to call the base with: the call
  // must happen on every rank.
  Status copy_in();
  Status copy_out();
  // The same without waiting; poll until finished.
  void copy_out_start();
  Poll copy_out_poll();

  // No buffer was added: the call keeps its own.
  bool empty() const { return count_ == 0; }
  void* host(int index) const;

 private:
  // Bytes that are copied at once: one run, or many with what lies between them.
  struct Span {
    ptrdiff_t offset;
    size_t bytes;
    size_t first_run;
    size_t nruns;
    memory::Place place;
  };
  struct Buffer {
    std::byte* program = nullptr;  // as the program passed it
    Blocks blocks;
    Access access = Access::read;
    bool skip = false;       // nothing is touched
    bool on_device = false;  // some of it
    bool unused = false;     // in this rank's call
    memory::Place place;     // of its first touched byte
    Runs runs;
    std::vector<Span> spans;
    std::byte* copy = nullptr;  // of the first run's first byte and all behind it
    ptrdiff_t lower = 0;        // that byte's distance from `program`
    bool shares = false;        // the copy is a part of the other buffer's
  };
  bool one_buffer() const;
  static void lay_out(Buffer& own);
  static void find_spans(Buffer& own);
  static void look(Buffer& own);
  Status read(const Buffer& own);
  Status write(const Buffer& own, bool wait);
  Status write_gapped(const Buffer& own, const Span& span);
  static void copy_runs(const Buffer& own, const Span& span, std::byte* to, const std::byte* from);

  // No collective has more buffers.
  static constexpr int limit = 2;
  std::array<Buffer, limit> buffers_;
  int count_ = 0;
  bool made_ = false;
  std::vector<uint64_t> copies_;  // under way
  Status out_;
};

// A nonblocking call below whose buffers may need host copies: copy in, the base's call, copy out.
// Begun when it is submitted, so that the base sees calls in the program's order.
class BouncedCall {
 public:
  // describe(copies) adds the call's buffers; begin(copies, inner) makes the base's call with
  // copies.host(i).
  using Describe = std::function<void(HostCopies& copies)>;
  using Begin = std::function<int(const HostCopies& copies, MPI_Request* inner)>;
  BouncedCall(Call call, Describe describe, Begin begin)
      : call_(call), describe_(std::move(describe)), begin_(std::move(begin)) {}

  Status start();
  Poll test();
  Call call() const { return call_; }
  bool base_done() const { return base_done_; }
  // What the base said when it was called; it has told the communicator's error handler.
  int base_error() const { return base_error_; }

 private:
  Call call_;
  Describe describe_;
  Begin begin_;
  HostCopies copies_;
  MPI_Request inner_ = MPI_REQUEST_NULL;
  int base_error_ = MPI_SUCCESS;
  bool base_done_ = false;
  Status status_;  // of the copies; the base's call goes on nevertheless
};

// Hands the call to the engine and gives the program a request for it.
int start_bounced(MPI_Comm comm, std::shared_ptr<BouncedCall> call, MPI_Request* request);

}  // namespace tutti::mpi
