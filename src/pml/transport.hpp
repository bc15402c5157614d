// Transport: moves bytes between the ranks of one communicator. The engine knows no more than this.
//
// Messages match by (sender, receiver, tag); equal triples match in the order posted. Nothing blocks.
// A buffer belongs to the transport until test() says finished. Calls of one Transport come from one
// thread at a time (the engine's lock). Errors: peer_lost when the peer cannot be reached, truncated
// when a message is longer than its receive; both end the call they belong to.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.hpp"
#include "core/poll.hpp"

namespace tutti {

class Transport {
 public:
  // Names a transfer in flight; valid until test() has said finished once.
  using Handle = uint64_t;

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int nranks() const = 0;
  virtual Result<Handle> send(int peer, uint64_t tag, const void* data, size_t bytes) = 0;
  virtual Result<Handle> recv(int peer, uint64_t tag, void* data, size_t bytes) = 0;
  virtual Poll test(Handle handle) = 0;
  virtual void progress() = 0;
  // Withdraws a transfer after an error. Returns when the buffer is no longer touched.
  virtual void cancel(Handle handle) = 0;
};

}  // namespace tutti
