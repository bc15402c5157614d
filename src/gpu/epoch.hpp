// The epochs of the LL engine: 32 bits in every line, and what makes that enough.
//
// A line shows the epoch of the call that wrote it. Were epochs simply to wrap, a line that long
// calls alone reach could show an old, equal epoch after 2^32 calls. So once in 2^30 calls both
// inboxes are cleared, each in a call that uses the other one: the gate before a launch says that
// all members have left the call before, so nobody reads that inbox or writes to it until this rank
// has left this call.
#pragma once

#include <cstdint>

namespace tutti::gpu {

class EpochCounter {
 public:
  explicit EpochCounter(uint64_t calls = 0) : calls_(calls) {}

  struct Turn {
    uint32_t epoch;    // of this call; its parity picks the inbox; never 0
    bool clear_other;  // clear the inbox of the other parity before the launch
  };
  Turn next() {
    ++calls_;
    // Epochs run 1 .. 2^32 - 2 and begin again: an even number of values, so that parity
    // alternates.
    uint32_t epoch = static_cast<uint32_t>((calls_ - 1) % 0xfffffffe) + 1;
    uint64_t in_period = calls_ % (uint64_t{1} << 30);
    return {epoch, calls_ > 1 && in_period <= 1};
  }
  // As if so many calls had been made: for tests of the wrap.
  void skip(uint64_t calls) { calls_ += calls; }

 private:
  uint64_t calls_;
};

}  // namespace tutti::gpu
