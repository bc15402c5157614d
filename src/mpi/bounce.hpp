// Calls of the MPI below on device memory: a buffer that the CPU may not touch is replaced by a
// host copy. The sequence of calls below is the same as on a rank whose buffers are host memory, so
// each rank does this by itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "comm/memory.hpp"
#include "engine/operation.hpp"
#include "mpi/below.hpp"
#include "mpi/requests.hpp"

namespace tutti::mpi {

// Where a call reads and writes.
enum class Access : uint8_t { read, write, read_write };

// The buffers of one call. add() each, then host() is what the base is given.
class HostCopies {
 public:
  HostCopies() = default;
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;
  ~HostCopies();

  // `count` elements at `buffer`, which may be MPI_IN_PLACE or null. Returns its index.
  int add(const void* buffer, int64_t count, MPI_Datatype datatype, Access access);
  // Looks where the buffers lie; true if one needs a copy. One query of the driver.
  bool needed();
  // Makes the copies and fills those that are read. On failure the host pointers are still good to
  // call the base with: the call must happen on every rank.
  Status copy_in();
  Status copy_out();
  // The same without waiting; poll until finished.
  Status copy_out_start();
  Poll copy_out_poll();

  void* host(int index) const;

 private:
  struct Buffer {
    void* program = nullptr;     // as the program passed it
    std::byte* first = nullptr;  // lowest byte that is touched
    ptrdiff_t lower = 0;         // its distance from `program`
    size_t bytes = 0;
    Access access = Access::read;
    bool skip = false;  // nothing is touched, or no address
    memory::Place place;
    std::byte* copy = nullptr;
    uint64_t handle = 0;
    bool copying = false;
  };
  static constexpr int limit = 4;
  std::array<Buffer, limit> buffers_;
  int count_ = 0;
};

// A nonblocking call below whose buffers have host copies: copy in, the base's call, copy out.
// Begun when it is submitted, so that the base sees calls in the program's order.
class BouncedCall {
 public:
  // begin(copies, inner) makes the base's call with copies.host(i).
  using Begin = std::function<int(const HostCopies& copies, MPI_Request* inner)>;
  explicit BouncedCall(Begin begin) : begin_(std::move(begin)) {}

  HostCopies copies;
  Status start();
  Poll test();
  bool base_done() const { return base_done_; }

 private:
  Begin begin_;
  MPI_Request inner_ = MPI_REQUEST_NULL;
  bool base_done_ = false;
  Status status_;  // of the copies; the base's call goes on nevertheless
};

// Hands the call to the engine and gives the program a request for it.
int start_bounced(MPI_Comm comm, std::shared_ptr<BouncedCall> call, MPI_Request* request);

}  // namespace tutti::mpi
