// The machine M of gpu/kernel/*.hpp on the CPU: threads of the pool, atomics and chance.
//
// It offers exactly the ordering that the kernels ask for (an acquire is an acquire, a relaxed
// store only relaxed), so a thread sanitizer sees a missing fence, and it delays at the events
// where order matters, so that completion order varies with the seed.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>

#include "emu/faults.hpp"
#include "gpu/kernel/machine.hpp"
#include "gpu/linger_args.hpp"
#include "gpu/tuning.hpp"

namespace tutti::emu {

// Barrier of the threads of one CTA that also says whether all of them voted yes.
class CtaBarrier {
 public:
  bool arrive(uint32_t threads, bool yes) {
    const uint32_t turn = turn_.load(std::memory_order_acquire);
    if (!yes) no_[turn & 1].store(true, std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
      arrived_.store(0, std::memory_order_relaxed);
      no_[(turn + 1) & 1].store(false, std::memory_order_relaxed);
      turn_.store(turn + 1, std::memory_order_release);
    } else {
      while (turn_.load(std::memory_order_acquire) == turn) sched_yield();
    }
    return !no_[turn & 1].load(std::memory_order_relaxed);
  }

 private:
  std::atomic<uint32_t> arrived_{0};
  std::atomic<uint32_t> turn_{0};
  std::atomic<bool> no_[2] = {false, false};
};

// Memory of one CTA.
struct CtaMemory {
  alignas(64) std::byte bytes[4096];
};

class Machine {
 public:
  Machine(uint32_t thread, uint32_t threads, uint32_t cta, uint32_t ctas, CtaBarrier* barrier,
          uint64_t seed)
      : thread_(thread),
        threads_(threads),
        cta_(cta),
        ctas_(ctas),
        barrier_(barrier),
        state_(seed) {
    delay();
  }

  uint32_t thread() const { return thread_; }
  uint32_t threads() const { return threads_; }
  uint32_t cta() const { return cta_; }
  uint32_t ctas() const { return ctas_; }
  void sync() const { barrier_->arrive(threads_, true); }
  bool sync_all(bool yes) const { return barrier_->arrive(threads_, yes); }

  // The epoch is the last word to be written and the first to be read: for one writer a call, that
  // makes the line whole without a 16-byte atomic.
  gpu::Pack load_line(const gpu::Pack* p) const {
    gpu::Pack line;
    line.w[3] = __atomic_load_n(&p->w[3], __ATOMIC_ACQUIRE);
    for (int i = 0; i < 3; ++i) line.w[i] = __atomic_load_n(&p->w[i], __ATOMIC_RELAXED);
    return line;
  }
  void store_line(gpu::Pack* p, gpu::Pack line) const {
    for (int i = 0; i < 3; ++i) __atomic_store_n(&p->w[i], line.w[i], __ATOMIC_RELAXED);
    __atomic_store_n(&p->w[3], line.w[3], __ATOMIC_RELEASE);
  }

  gpu::Pack load_send(const gpu::Pack* p) const { return *p; }
  gpu::Pack load_lane(const gpu::Pack* p) const { return *p; }
  void store(gpu::Pack* p, gpu::Pack x) const { *p = x; }

  uint64_t load_acquire(const uint64_t* p) const { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
  void store_release(uint64_t* p, uint64_t v) const {
    delay();
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
  }
  // A relaxed store after a fence is a release. Thread sanitizers know no fences, so the store
  // itself is one; that it must follow a fence is checked.
  void store_relaxed(uint64_t* p, uint64_t v) const {
    if (!fenced_) __builtin_trap();
    delay();
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
  }
  uint32_t peek(const uint32_t* p) const { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
  void poke(uint32_t* p, uint32_t v) const { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
  bool count_in(uint32_t* p, uint32_t n) const {
    if (__atomic_fetch_add(p, 1, __ATOMIC_ACQ_REL) + 1 != n) return false;
    __atomic_store_n(p, 0, __ATOMIC_RELAXED);
    return true;
  }
  void fence_system() const {
    delay();
    fenced_ = true;
  }
  void fence_device() const {}

  void spin() const {
    if (++turns_ % 64 == 0)
      usleep(20);
    else
      sched_yield();
  }

  static float half_to_float(uint16_t half);
  static uint16_t float_to_half(float value);
  static uint16_t float_to_bfloat(float value);

 private:
  uint64_t random() const {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  void delay() const {
    const int64_t longest = faults().delay_us.load(std::memory_order_relaxed);
    if (longest == 0) return;
    uint64_t chance = random();
    if (chance % 4 == 0)
      usleep(static_cast<useconds_t>((chance >> 8) % static_cast<uint64_t>(longest + 1)));
  }

  uint32_t thread_, threads_, cta_, ctas_;
  CtaBarrier* barrier_;
  mutable uint64_t state_;
  mutable uint64_t turns_ = 0;
  mutable bool fenced_ = false;
};

// Barrier that one side passes at once and the other waits at, for one arrival each time.
class WakeBarrier {
 public:
  void arrive() { woken_.fetch_add(1, std::memory_order_release); }
  // `turn` counts a thread's own waits.
  void wait(uint32_t& turn) {
    ++turn;
    for (uint32_t looks = 1; woken_.load(std::memory_order_acquire) < turn; ++looks)
      looks % 64 == 0 ? static_cast<void>(usleep(20)) : static_cast<void>(sched_yield());
  }

 private:
  std::atomic<uint32_t> woken_{0};
};

// Of one CTA of a lingering kernel.
struct TeamCta {
  CtaBarrier all;
  CtaBarrier workers;
  WakeBarrier wake;
  CtaMemory memory;
};

// The machine of a lingering kernel: see gpu/kernel/linger.hpp. A team is one thread.
class Team : public Machine {
 public:
  static constexpr uint32_t alone_bytes = 48;
  static constexpr uint32_t workers = gpu::emulated::linger_workers;
  static constexpr uint32_t all_threads = workers + 1;

  Team(uint32_t thread, uint32_t cta, uint32_t ctas, TeamCta* own, uint64_t seed)
      : Machine(thread, workers, cta, ctas, &own->workers, seed), own_(own) {}

  uint32_t grid_cta() const { return Machine::cta(); }
  uint32_t grid_ctas() const { return Machine::ctas(); }
  bool in_team() const { return Machine::thread() == workers; }
  bool team_first() const { return true; }

  void work(uint32_t ctas) { work_ctas_ = ctas; }
  void work_alone() { alone_ = true; }
  uint32_t thread() const { return alone_ ? 0 : Machine::thread(); }
  uint32_t threads() const { return alone_ ? 1 : workers; }
  uint32_t cta() const { return alone_ ? 0 : Machine::cta(); }
  uint32_t ctas() const { return work_ctas_; }
  void sync() const {
    if (!alone_) Machine::sync();
  }
  bool sync_all(bool yes) const { return alone_ ? yes : Machine::sync_all(yes); }
  void sync_cta() const { own_->all.arrive(all_threads, true); }
  void await_wake() { own_->wake.wait(turn_); }
  void wake() const { own_->wake.arrive(); }

  template <class T>
  T& shared() const {
    static_assert(sizeof(T) <= sizeof own_->memory.bytes);
    return *reinterpret_cast<T*>(own_->memory.bytes);
  }
  uint32_t look(const uint32_t* word) const { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
  void set(uint32_t* word, uint32_t v) const { __atomic_store_n(word, v, __ATOMIC_RELEASE); }

  bool read_bell(const uint64_t* bell, uint32_t ring, gpu::LingerCommand& command) const {
    gpu::LingerCommand seen;
    for (uint32_t i = 0; i < gpu::command_words; ++i) {
      const uint64_t word = load_acquire(bell + i);
      if (word >> 32 != ring) return false;
      seen.word[i] = static_cast<uint32_t>(word);
    }
    command = seen;
    return true;
  }
  bool read_relay(const uint64_t* relay, uint32_t last, uint32_t& ring,
                  gpu::LingerCommand& command) const {
    const uint32_t shown = static_cast<uint32_t>(load_acquire(relay) >> 32);
    if (!gpu::ring_after(shown, last) || !read_bell(relay, shown, command)) return false;
    ring = shown;
    return true;
  }
  void write_relay(uint64_t* relay, uint32_t ring, const gpu::LingerCommand& command) const {
    for (uint32_t i = 0; i < gpu::command_words; ++i)
      store_release(relay + i, command.word[i] | static_cast<uint64_t>(ring) << 32);
  }
  uint64_t team_clock_ns() const {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
  }

 private:
  TeamCta* own_;
  uint32_t work_ctas_ = 1;
  uint32_t turn_ = 0;
  bool alone_ = false;
};

inline float Machine::half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = half >> 10 & 0x1f;
  const uint32_t fraction = half & 0x3ff;
  if (exponent == 0) {  // zero and subnormals: the fraction counts units of 2^-24
    float value = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -value : value;
  }
  const uint32_t bits = exponent == 0x1f ? sign | 0x7f800000 | fraction << 13
                                         : sign | (exponent + 112) << 23 | fraction << 13;
  return __builtin_bit_cast(float, bits);
}

inline uint16_t Machine::float_to_half(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7fff;          // NaN, as cvt.rn.f16 gives it
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to infinity
  if (magnitude < 0x38800000) {                       // subnormal: round in units of 2^-24
    const float scaled = __builtin_bit_cast(float, magnitude) * 0x1p24f;
    uint32_t units = static_cast<uint32_t>(scaled);
    const float rest = scaled - static_cast<float>(units);
    if (rest > 0.5f || (rest == 0.5f && (units & 1))) ++units;
    return static_cast<uint16_t>(sign | units);
  }
  const uint32_t rounded = magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | rounded >> 13);
}

inline uint16_t Machine::float_to_bfloat(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;  // NaN, as cvt.rn.bf16 gives it
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace tutti::emu
