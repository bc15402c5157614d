// The host's end of a lingering kernel (gpu/kernel/linger.hpp), one for each process and device
// whatever the number of its groups: who may ring, when it is worth it, and how a ring is never lost.
//
// The hand-shake. Rings are numbered. The kernel alone decides: for every number it either reads the
// bell with it, performs the command and says `done`, or gives up waiting, stores the number into
// `left` and touches nothing any more. It never does both for one number, for it stores `left` after
// its last look at the bell, and never neither, for it leaves no other way. So the host rings without
// asking and then waits for `done` or for `left` to show its number: in the second case nobody has
// taken the command and nobody will, and a fresh kernel is launched with it. A look at `left` before
// ringing only saves the detour. A kernel that dies says neither; its stream tells.
//
// Ownership. Only the owner may ring, launch or look: begin() makes the group the owner if nobody is,
// end() gives it back once the call is over. So there is one command at most on the bell, and a call
// that finds an owner is launched as if there were no lingering kernel. A call that never ends keeps
// the ownership for good, and no kernel lingers in this process from there on.
//
// Deadlock. While it waits for the bell it holds CTAs that the budgets of the groups do not provide for,
// but for the window at most; while it performs a call it is that group's kernel, within its budget.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "gpu/device.hpp"
#include "gpu/linger_args.hpp"
#include "gpu/plan.hpp"

namespace tutti::gpu {

// In memory that both sides can write. Each word has one writer: the bell the host, `left` the kernel.
struct LingerLine {
  alignas(64) uint64_t bell[command_words];
  alignas(64) uint64_t left;
};

// Whether a kernel shall stay, from what the calls so far looked like.
//
// What it costs is not seen from here: a program that synchronises the device, or frees memory, waits
// for the rest of the window, and a kernel that fills the device is short of its SMs. So a stay must
// pay: one whose rings gained less than a window is a loss, and after each loss twice as many calls
// close to each other must be seen before the next one (a program that synchronises after every call
// waits for 1 in `most_calls`).
//
// The window. On two H200s (2026-11-30, bench/results/2026-11-30-gpu-linger) 20 and 50 us give the same
// medians; a synchronisation of the device takes 52 us longer with 50. Calls that follow each other
// within 20 us leave the program no time to wait for a kernel of any length in between, so that only
// the end of a burst of calls meets the program's kernels.
class LingerPolicy {
 public:
  // What a ring gains against a launch: 3.5-3.7 us from 8 B to 4 KiB, 3 at 8; with several CTAs 1.5-2.6.
  static constexpr uint64_t gain_ns = 3'000;
  static constexpr uint64_t gain_of_many_ns = 1'500;
  static constexpr uint32_t fewest_calls = 2;
  static constexpr uint32_t most_calls = 4096;

  // A call begins; whether a kernel that is launched for it shall stay.
  bool call(uint64_t now_ns, uint64_t window_ns) {
    const bool close = last_call_ns_ != 0 && now_ns - last_call_ns_ < window_ns;
    last_call_ns_ = now_ns;
    window_ns_ = window_ns;
    close_calls_ = close ? close_calls_ + 1 : 0;
    return close_calls_ >= calls_wanted_;
  }
  void rung(uint32_t ctas) { gained_ns_ += ctas > 1 ? gain_of_many_ns : gain_ns; }
  // The kernel has left.
  void left() {
    if (gained_ns_ >= window_ns_)
      calls_wanted_ = calls_wanted_ / 4 > fewest_calls ? calls_wanted_ / 4 : fewest_calls;
    else if (calls_wanted_ < most_calls && !eager.load(std::memory_order_relaxed))
      calls_wanted_ *= 2;
    gained_ns_ = 0;
  }
  // The kernel was told to leave, which says nothing of the calls.
  void dismissed() { gained_ns_ = 0; }
  // For tests: a loss changes nothing.
  static inline std::atomic<bool> eager{false};

 private:
  uint64_t last_call_ns_ = 0;
  uint32_t close_calls_ = 0;
  uint32_t calls_wanted_ = fewest_calls;
  uint64_t gained_ns_ = 0;
  uint64_t window_ns_ = 0;
};

class Linger {
 public:
  // How a call goes: by a kernel of its own, by a lingering kernel to launch, or already rung.
  enum class Way : uint8_t { alone, launch, rung };

  struct Counts {
    std::atomic<uint64_t> rung{0};
    std::atomic<uint64_t> launched{0};
    std::atomic<uint64_t> missed{0};  // rings that a leaving kernel did not take
  };

  // Before the first group. The line, and the relay of command_words zeros in the device's memory, live
  // as long as the process.
  void open(LingerLine* line, uint64_t* relay) {
    line_ = line;
    relay_ = relay;
  }
  bool is_open() const { return line_ != nullptr; }
  // For good: a hazard was found (kernels of another process on this device, say).
  void forbid() { forbidden_.store(true, std::memory_order_relaxed); }

  // Makes a group known; its number, or nothing when there are too many or the device forbids it.
  std::optional<uint32_t> add(const LingerSlot& slot);
  // Forgets it, and tells an idle kernel to leave. The group must not be the owner, or its call lost.
  void remove(uint32_t slot);

  // A call of `group` that may linger begins. After launch or rung the group is the owner.
  Way begin(const void* group, const LingerCommand& command, uint32_t nranks, uint64_t window_ns,
            uint64_t now_ns);
  // The rest is for the owner.
  // Whether the kernel has left without the command.
  bool has_left() const { return __atomic_load_n(&line_->left, __ATOMIC_ACQUIRE) == ring_; }
  // The same, and then the command is to be launched.
  bool missed();
  // What to launch for the command; then the kernel counts as running.
  LingerArgs launch_args();
  // The call is over, well or badly.
  void end();

  // The smallest number of ranks that the kernel launched last can serve is 2; this is the largest.
  uint32_t launched_ranks() const { return launched_ranks_; }
  uint32_t launched_ctas() const { return launched_ctas_; }
  const Counts& counts() const { return counts_; }

 private:
  bool gone() const;
  void ring(const LingerCommand& command);
  bool serves(const LingerCommand& command, uint32_t nranks) const;
  void ask_to_leave();
  void ring_leave();

  LingerLine* line_ = nullptr;
  uint64_t* relay_ = nullptr;
  std::atomic<const void*> owner_{nullptr};
  std::atomic<bool> forbidden_{false};
  Counts counts_;

  std::mutex slots_mutex_;
  LingerSlot slots_[linger_slots] = {};
  bool taken_[linger_slots] = {};
  std::atomic<uint64_t> slots_version_{0};

  // Of the owner.
  LingerPolicy policy_;
  LingerCommand command_{};
  uint32_t ring_ = 0;
  bool running_ = false;
  bool leaving_ = false;  // was told to
  uint64_t launched_version_ = 0;
  uint32_t launched_ranks_ = 0;
  uint32_t launched_ctas_ = 0;
  uint32_t most_ctas_ = 0;  // that a call since the last launch wanted
  uint32_t nranks_ = 0;
  uint64_t window_ns_ = 0;
};

// Lines in flight a worker: with more, of fewer threads, every call takes longer.
constexpr uint32_t linger_depth(uint32_t nranks) {
  return nranks <= 2 ? 2 : 1;
}

// The most ranks that a lingering kernel made for `nranks` serves: there is one for two, and one.
constexpr uint32_t linger_capacity(uint32_t nranks) {
  return nranks <= 2 ? 2 : max_ranks;
}

// The command for a planned call, or nothing when it cannot linger: too large, on memory
// that can fault a page in, or a call that clears an inbox first.
std::optional<LingerCommand> linger_command(const Call& call, const Plan& plan,
                                            const PlanSpace& space, const KernelArgs& args,
                                            uint32_t slot);

}  // namespace tutti::gpu
