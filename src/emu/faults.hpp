// Knobs by which tests make the emulated device slow or faulty.
#pragma once

#include <atomic>
#include <cstdint>

namespace tutti::emu {

// Countdowns: k > 0 refuses the k-th use from now on; 0 is off.
struct Faults {
  std::atomic<int64_t> refuse_alloc{0};
  std::atomic<int64_t> refuse_export{0};
  std::atomic<int64_t> refuse_import{0};
  std::atomic<int64_t> refuse_launch{0};
  std::atomic<int64_t> fault_launch{0};  // the k-th kernel from now on faults
  std::atomic<int64_t> delay_us{0};      // longest random delay of a kernel thread at its events
  std::atomic<int64_t> seed{1};
  std::atomic<int64_t> first_call{0};    // number of calls that a new group takes for already done
  std::atomic<int64_t> skip_calls{0};    // the next call of a group takes so many more for done
  std::atomic<int64_t> small_lanes{-1};  // how many there are; before the first group; -1 = default
};
Faults& faults();

// True when this use is the one to refuse.
bool refuse(std::atomic<int64_t>& countdown);

}  // namespace tutti::emu
