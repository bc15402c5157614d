// What a kernel body asks of the machine it runs on.
//
// The bodies in this folder are templates over a machine M, compiled twice: by nvcc for the GPU
// (src/cuda/machine.cuh, PTX) and by the host compiler for the emulation (src/emu/machine.hpp, CPU
// threads and atomics). So the emulation runs the very index arithmetic, flags, epochs and credits
// that the GPU runs. M offers, as const members:
//   thread() threads() cta() ctas()             where this thread is
//   sync()                                      barrier of the CTA's threads
//   sync_all(bool) -> bool                      the same; true when all threads said true
//   load_line(p) / store_line(p, line)          16 bytes in one access, relaxed, system scope
//   load_send(p) / load_lane(p) / store(p, x)   16 bytes: user memory that nobody writes now / own
//                                               lane, past any stale cache line / plain
//   load_acquire(p) store_release(p, v) store_relaxed(p, v)   64-bit flags, system scope
//   peek(p) poke(p, v)                          32-bit words, relaxed, system scope
//   fence_system() fence_device()               acquire-release fences
//   count_in(p, n) -> bool                      adds 1, acquire-release in the device; true for the
//                                               n-th, which leaves 0 behind
//   half_to_float() float_to_half() ...         conversions, to nearest even
//   spin()                                      called in every turn of a wait
#pragma once

#include <cstdint>

#include "gpu/args.hpp"

#ifdef __CUDACC__
#define TUTTI_KERNEL_FN __device__ __forceinline__
#define TUTTI_KERNEL_COLD __device__ __noinline__
#define TUTTI_UNROLL _Pragma("unroll")
#define TUTTI_NO_UNROLL _Pragma("unroll 1")
#else
#define TUTTI_KERNEL_FN inline
#define TUTTI_KERNEL_COLD inline
#define TUTTI_UNROLL
#define TUTTI_NO_UNROLL
#endif

namespace tutti::gpu {

// 16 bytes, in registers.
struct alignas(16) Pack {
  uint32_t w[4];
};

// An abort is looked for once in so many turns of a wait: the host's word lies across PCIe (about
// 1 us), a turn takes 0.3-0.7 us.
inline constexpr uint32_t turns_between_abort_checks = 512;

// True when the call shall be given up.
template <class M>
TUTTI_KERNEL_FN bool aborted(const M& m, const KernelArgs& a) {
  return m.peek(a.abort_word) != 0 ||
         m.peek(reinterpret_cast<const uint32_t*>(a.lane[a.rank] + lane_abort_offset)) != 0;
}

// Waits until the flag has reached `want`; false when the call is given up.
template <class M>
TUTTI_KERNEL_FN bool wait_flag(const M& m, const KernelArgs& a, const uint64_t* flag,
                               uint64_t want) {
  for (uint32_t turn = 1; m.load_acquire(flag) < want; ++turn) {
    m.spin();
    if (turn % turns_between_abort_checks == 0 && aborted(m, a)) return false;
  }
  return true;
}

// Word of a flag table in the lane of `owner`.
template <class M>
TUTTI_KERNEL_FN uint64_t* flag_word(const M&, const KernelArgs& a, uint32_t owner, Flag table,
                                    uint32_t source, uint32_t slot) {
  uint64_t index = (static_cast<uint64_t>(table) * max_ranks + source) * a.layout.slots_max + slot;
  return reinterpret_cast<uint64_t*>(a.lane[owner] + a.layout.flag_offset + index * flag_bytes);
}

// The end of every kernel: the last CTA tells the host.
//
// Soft: the counter is acquire-release in the device and the line is stored relaxed. That orders
// the results before anything the host starts on this GPU after it saw the line, which is all a
// result in this GPU's memory needs; the PTX model does not call it a release towards the host, so
// results that the host or another device reads go the release way (1.2-1.6 us more, gpu-lab).
template <class M>
TUTTI_KERNEL_FN void finish(const M& m, const KernelArgs& a, bool alive) {
  if (!alive) {
    m.poke(a.failed, 1);
    // The abort travels on: peers whose host has not heard of it yet leave as well.
    for (uint32_t p = 0; p < a.nranks; ++p)
      m.poke(reinterpret_cast<uint32_t*>(a.lane[p] + lane_abort_offset), 1);
    m.fence_system();
  }
  m.sync();
  if (m.thread() != 0) return;
  bool last = true;
  if (m.ctas() > 1) {
    auto* counter = reinterpret_cast<uint32_t*>(a.lane[a.rank] + lane_counter_offset);
    last = m.count_in(counter, m.ctas());
  } else if (a.soft) {
    m.fence_device();
  }
  if (!last) return;
  if (!a.soft) m.fence_system();
  m.poke(a.done, a.sequence);
}

}  // namespace tutti::gpu
