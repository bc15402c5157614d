// Operation: anything that goes on after the call that began it: a schedule, a node collective, a
// bounce through the MPI below. The engine starts it, polls it, and asks it whom it waits for.
//
// start() and poll() never block and never wait for another rank. After poll() says finished,
// neither a peer nor a kernel touches the call's buffers (law 3). One thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "core/poll.hpp"
#include "core/types.hpp"

namespace tutti {

// What the watchdog and mismatch messages say of a call; a field of every request.
struct CallRecord {
  Coll coll = Coll::allreduce;
  uint64_t sequence = 0;      // number of the call on its communicator, from 1
  uint64_t signature = 0;     // hash of Agreed: equal on all ranks of a correct program
  uint64_t entry_ns = 0;      // monotonic clock; 0 until the first slow look
  uint64_t next_look_ns = 0;  // at the peers' processes
  bool warned = false;        // the watchdog has named who is missing
};

class Operation {
 public:
  virtual ~Operation() = default;
  virtual Status start() = 0;
  virtual Poll poll() = 0;
  // Ends the call on this rank with that error; peers learn of it and end theirs. Before start(): the
  // operation enters with the error, so that no peer ends well.
  virtual void abort(Status why) = 0;
  // Whether start() or poll() may call the MPI below just now: a helper thread leaves it alone
  // then.
  virtual bool needs_base() const { return false; }
  // Asked now and then while the call takes long: peer_lost once a rank that it waits for has died.
  virtual Status check_peers() { return {}; }
  // What it is doing now, for messages; static text.
  virtual const char* phase() const = 0;
  // Ranks of the communicator that have not arrived, for the watchdog: "rank 3 (host b, pid 17)".
  virtual std::string waiting_for() const = 0;
};

}  // namespace tutti
