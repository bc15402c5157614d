// The machine of a lingering kernel: see gpu/kernel/linger.hpp. Its team is the CTA's last warp.
#pragma once

#include "cuda/machine.cuh"
#include "gpu/linger_args.hpp"
#include "gpu/tuning.hpp"

namespace tutti::cuda {

class Team : public Machine {
 public:
  // 22 lines. Alone saves the two barriers of the workers (0.2 us); at 512 B it is the slower way
  // (gpu-lab section 3).
  static constexpr uint32_t alone_bytes = 256;

  __device__ uint32_t grid_cta() const { return blockIdx.x; }
  __device__ uint32_t grid_ctas() const { return gridDim.x; }
  __device__ bool in_team() const { return threadIdx.x >= workers(); }
  __device__ bool team_first() const { return threadIdx.x == workers(); }

  __device__ void work(uint32_t ctas) { ctas_ = ctas; }
  __device__ void work_alone() { alone_ = true; }
  __device__ uint32_t thread() const { return alone_ ? threadIdx.x % warp : threadIdx.x; }
  __device__ uint32_t threads() const { return alone_ ? warp : workers(); }
  __device__ uint32_t cta() const { return alone_ ? 0 : blockIdx.x; }
  __device__ uint32_t ctas() const { return ctas_; }
  __device__ void sync() const {
    if (alone_)
      __syncwarp();
    else
      asm volatile("barrier.sync.aligned 1, %0;" ::"r"(workers()) : "memory");
  }
  __device__ bool sync_all(bool yes) const {
    if (alone_) return __all_sync(~0u, yes) != 0;
    uint32_t all;
    asm volatile(
        "{ .reg .pred p, q; setp.ne.u32 p, %1, 0; barrier.red.and.pred.aligned q, 1, %2, p; "
        "selp.u32 %0, 1, 0, q; }"
        : "=r"(all)
        : "r"(static_cast<uint32_t>(yes)), "r"(workers())
        : "memory");
    return all != 0;
  }
  __device__ void sync_cta() const { __syncthreads(); }
  __device__ void await_wake() const {
    asm volatile("barrier.sync.aligned 2, %0;" ::"r"(workers() + warp) : "memory");
  }
  __device__ void wake() const {
    __syncwarp();
    asm volatile("barrier.arrive.aligned 2, %0;" ::"r"(workers() + warp) : "memory");
  }

  template <class T>
  __device__ T& shared() const {
    __shared__ alignas(16) unsigned char memory[sizeof(T)];
    return *reinterpret_cast<T*>(memory);
  }
  __device__ uint32_t look(const uint32_t* word) const {
    uint32_t v;
    asm volatile("ld.acquire.cta.u32 %0, [%1];" : "=r"(v) : "l"(word) : "memory");
    return __shfl_sync(~0u, v, 0);
  }
  __device__ void set(uint32_t* word, uint32_t v) const {
    asm volatile("st.release.cta.u32 [%0], %1;" ::"l"(word), "r"(v) : "memory");
  }

  // One 64-byte read by eight threads. Each word is an acquire: what the program wrote to its buffers
  // before the call, on the host or by a kernel whose end the host has seen, is read after it. The
  // threads that do not read it are behind a barrier of the warp, or of the CTA.
  __device__ bool read_bell(const uint64_t* bell, uint32_t ring,
                            gpu::LingerCommand& command) const {
    uint64_t word = static_cast<uint64_t>(ring) << 32;
    if (threadIdx.x % warp < gpu::command_words) word = load_acquire(bell + threadIdx.x % warp);
    if (!__all_sync(~0u, static_cast<uint32_t>(word >> 32) == ring)) return false;
    spread(word, command);
    return true;
  }
  // The same form, from one SM to the others.
  __device__ bool read_relay(const uint64_t* relay, uint32_t last, uint32_t& ring,
                             gpu::LingerCommand& command) const {
    uint64_t word = 0;
    if (threadIdx.x % warp < gpu::command_words)
      asm volatile("ld.acquire.gpu.global.u64 %0, [%1];"
                   : "=l"(word)
                   : "l"(relay + threadIdx.x % warp)
                   : "memory");
    const uint32_t shown = __shfl_sync(~0u, static_cast<uint32_t>(word >> 32), 0);
    const bool same = static_cast<uint32_t>(word >> 32) == shown;
    if (!__all_sync(~0u, same || threadIdx.x % warp >= gpu::command_words) ||
        !gpu::ring_after(shown, last))
      return false;
    ring = shown;
    spread(word, command);
    return true;
  }
  __device__ void write_relay(uint64_t* relay, uint32_t ring,
                              const gpu::LingerCommand& command) const {
    uint32_t low = command.word[0];
#pragma unroll
    for (uint32_t i = 1; i < gpu::command_words; ++i)
      if (threadIdx.x % warp == i) low = command.word[i];
    if (threadIdx.x % warp < gpu::command_words)
      asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(relay + threadIdx.x % warp),
                   "l"(low | static_cast<uint64_t>(ring) << 32)
                   : "memory");
  }
  __device__ uint64_t team_clock_ns() const {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return __shfl_sync(~0u, now, 0);
  }

 private:
  static constexpr uint32_t warp = gpu::linger_team;

  __device__ uint32_t workers() const {
    return blockDim.x - warp;
  }
  __device__ static void spread(uint64_t word, gpu::LingerCommand& command) {
#pragma unroll
    for (uint32_t i = 0; i < gpu::command_words; ++i)
      command.word[i] = __shfl_sync(~0u, static_cast<uint32_t>(word), static_cast<int>(i));
    __syncwarp();
  }

  uint32_t ctas_ = 1;
  bool alone_ = false;
};

}  // namespace tutti::cuda
