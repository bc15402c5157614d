// Which blocking rooted calls of a communicator have had host memory alone for a while, and so go to the MPI
// below, whose root and leaves do not wait for all to enter (law 6: on one node bcast, gather and scatter on
// host memory are faster there at most sizes, reduce at small ones).
//
// Equal on all ranks: it is fed with what the gate told all ranks alike, by blocking calls only, each of which
// has ended before the next is chosen; how far nonblocking calls have come differs between ranks. Every
// `probe_period`-th call still goes through the gate, to learn of device memory. A device buffer in between is
// copied by its rank, which is slow and right.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "core/types.hpp"

namespace tutti {

class HostHabit {
 public:
  static constexpr uint8_t calls_to_learn = 8;
  static constexpr uint8_t probe_period = 64;
  static constexpr uint64_t largest_reduce_bytes = 16 << 10;

  // A blocking call begins; whether it goes below. Once a call.
  bool goes_below(Coll coll, uint64_t bytes) {
    Entry* entry = find(coll, bytes);
    if (entry == nullptr || entry->host_calls < calls_to_learn) return false;
    if (++entry->since_probe < probe_period) return true;
    entry->since_probe = 0;
    return false;
  }
  // What the gate of a blocking call told.
  void note(Coll coll, uint64_t bytes, bool all_host) {
    Entry* entry = find(coll, bytes);
    if (entry == nullptr) return;
    if (!all_host)
      *entry = {};
    else if (entry->host_calls < calls_to_learn)
      ++entry->host_calls;
  }

 private:
  struct Entry {
    uint8_t host_calls = 0;  // in a row, up to calls_to_learn
    uint8_t since_probe = 0;
  };
  // Programs use small host buffers and large device buffers side by side: sizes learn apart.
  static constexpr size_t sizes = 33;
  static constexpr size_t collectives = 4;

  Entry* find(Coll coll, uint64_t bytes) {
    size_t row = 0;
    switch (coll) {
      case Coll::bcast:
        break;
      case Coll::gather:
        row = 1;
        break;
      case Coll::scatter:
        row = 2;
        break;
      case Coll::reduce:
        if (bytes > largest_reduce_bytes) return nullptr;
        row = 3;
        break;
      default:
        return nullptr;
    }
    return &entries_[row][static_cast<size_t>(std::bit_width(bytes)) / 2];
  }

  std::array<std::array<Entry, sizes>, collectives> entries_{};
};

}  // namespace tutti
