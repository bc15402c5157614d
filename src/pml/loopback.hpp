// Loopback: a transport between threads of one process, for tests, with everything about it that a
// network may do to a program made likely and repeatable.
//
// A message becomes visible to its receiver, and a finished transfer to its owner, only after a
// seeded random number of looks, so completions come in any order. Messages up to eager_bytes are
// buffered while the pair's buffer lasts, as in a network; longer ones, and those that find no
// room, are read from the sender's buffer when they match. A posted receive buffer holds rubbish
// until the transfer has finished. Faults are planted by the number of the message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "pml/transport.hpp"

namespace tutti {

struct LoopbackOptions {
  uint64_t seed = 1;
  size_t eager_bytes = 256;         // longest message that is buffered
  size_t eager_total_bytes = 1024;  // buffered at once from one rank to one other
  uint32_t max_delay = 8;           // looks until a message or a completion shows; 0: none
};

class Loopback {
 public:
  explicit Loopback(int nranks, LoopbackOptions options = {});
  ~Loopback();
  Loopback(const Loopback&) = delete;
  Loopback& operator=(const Loopback&) = delete;

  // Rank r's end. Its calls come from one thread at a time; it lives as long as the Loopback.
  Transport& transport(int rank);

  // The rank dies just before its nth send (from 0) leaves: that message and all later ones are
  // lost, and every transfer with it ends with peer_lost on the other ranks.
  void plant_death(int rank, uint64_t nth_send);
  // The nth message (from 0) between the two arrives longer than its receive.
  void plant_truncation(int from, int to, uint64_t nth_message);

  // Messages sent and not received by anybody: 0 after calls that ended well.
  size_t unmatched() const;

 private:
  struct World;
  class Endpoint;
  std::unique_ptr<World> world_;
};

}  // namespace tutti
