// Transport: moves bytes between the ranks of one communicator. The engine knows no more than this.
//
// Messages match by (sender, receiver, tag); equal triples match in the order posted. Nothing
// blocks. A buffer belongs to the transport until test() says finished. Calls of one Transport come
// from one thread at a time (the engine's lock). Errors: peer_lost when the peer cannot be reached,
// truncated when a message is longer than its receive; both end the call they belong to.
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
  // How many low bits of a tag take part in matching: a network's match word also has to hold the
  // communicator, the sender and an error code. Higher bits must be zero.
  static constexpr int tag_bits = 28;

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int nranks() const = 0;
  virtual Result<Handle> send(int peer, uint64_t tag, const void* data, size_t bytes) = 0;
  virtual Result<Handle> recv(int peer, uint64_t tag, void* data, size_t bytes) = 0;
  // In place of a send: the receive that would match it ends with `why`. Carries no data, has no
  // handle, and is dropped without a word when the peer is lost. This is how a rank that failed
  // inside a call keeps its peers from waiting for it.
  virtual void send_error(int peer, uint64_t tag, Status why) = 0;
  virtual Poll test(Handle handle) = 0;
  virtual void progress() = 0;
  // Whether everything that test() has called finished goes on without this process: a send may end
  // when its bytes have been copied, and still need progress() to leave. Asked at the end of a call
  // (law 3), again and again until it says so.
  virtual bool quiet() { return true; }
  // Withdraws a transfer after an error and forgets its handle. Returns when the buffer is no
  // longer touched. True when the peer will never see it, so something else may take its place.
  virtual bool cancel(Handle handle) = 0;
};

}  // namespace tutti
