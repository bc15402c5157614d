// The machine of a lingering kernel, of one CTA: see gpu/kernel/linger.hpp. Its team is warp 0.
#pragma once

#include "cuda/machine.cuh"
#include "gpu/linger_args.hpp"

namespace tutti::cuda {

class Team : public Machine {
 public:
  static constexpr uint32_t team = 32;
  // 22 lines. Alone saves the two barriers of the CTA (0.2 us); at 512 B it is the slower way (gpu-lab
  // section 3).
  static constexpr uint32_t alone_bytes = 256;

  __device__ void alone(bool yes) { alone_ = yes; }
  __device__ uint32_t threads() const { return alone_ ? team : blockDim.x; }
  __device__ uint32_t cta() const { return 0; }
  __device__ uint32_t ctas() const { return 1; }
  __device__ void sync() const {
    if (alone_)
      __syncwarp();
    else
      __syncthreads();
  }
  __device__ bool sync_all(bool yes) const {
    return (alone_ ? __all_sync(~0u, yes) : __syncthreads_and(yes)) != 0;
  }
  template <class T>
  __device__ T& shared() const {
    __shared__ alignas(16) unsigned char memory[sizeof(T)];
    return *reinterpret_cast<T*>(memory);
  }
  // One 64-byte read by eight threads. Each word is an acquire: what the program wrote to its buffers
  // before the call, on the host or by a kernel whose end the host has seen, is read after it. The
  // threads that do not read the bell are behind the barrier of the warp, or of the CTA.
  __device__ bool read_bell(const uint64_t* bell, uint32_t ring,
                            gpu::LingerCommand& command) const {
    uint64_t word = static_cast<uint64_t>(ring) << 32;
    if (threadIdx.x < gpu::command_words) word = load_acquire(bell + threadIdx.x);
    if (!__all_sync(~0u, static_cast<uint32_t>(word >> 32) == ring)) return false;
#pragma unroll
    for (uint32_t i = 0; i < gpu::command_words; ++i)
      command.word[i] = __shfl_sync(~0u, static_cast<uint32_t>(word), static_cast<int>(i));
    __syncwarp();
    return true;
  }
  __device__ uint64_t team_clock_ns() const {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return __shfl_sync(~0u, now, 0);
  }

 private:
  bool alone_ = false;
};

}  // namespace tutti::cuda
