// The machine M of gpu/kernel/*.hpp on an NVIDIA GPU: PTX, sm_80 and later.
#pragma once

#include <cstdint>

#include "gpu/kernel/machine.hpp"

namespace tutti::cuda {

class Machine {
 public:
  __device__ uint32_t thread() const { return threadIdx.x; }
  __device__ uint32_t threads() const { return blockDim.x; }
  __device__ uint32_t cta() const { return blockIdx.x; }
  __device__ uint32_t ctas() const { return gridDim.x; }
  __device__ void sync() const { __syncthreads(); }
  __device__ bool sync_all(bool yes) const { return __syncthreads_and(yes) != 0; }

  // One scalar 128-bit access: PTX promises that it is not torn (ISA 8.3, sm_70).
  __device__ gpu::Pack load_line(const gpu::Pack* p) const {
    uint64_t low, high;
    asm volatile("{ .reg .b128 q; ld.relaxed.sys.global.b128 q, [%2]; mov.b128 {%0, %1}, q; }"
                 : "=l"(low), "=l"(high)
                 : "l"(p)
                 : "memory");
    return {{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
             static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)}};
  }
  __device__ void store_line(gpu::Pack* p, gpu::Pack line) const {
    uint64_t low = line.w[0] | static_cast<uint64_t>(line.w[1]) << 32;
    uint64_t high = line.w[2] | static_cast<uint64_t>(line.w[3]) << 32;
    asm volatile(
        "{ .reg .b128 q; mov.b128 q, {%1, %2}; st.relaxed.sys.global.b128 [%0], q; }" ::"l"(p),
        "l"(low), "l"(high)
        : "memory");
  }

  // User memory is read once: no line of L1 for it. (Not ld.global.nc: the memory model has no
  // place for it, and the buffer may be written later in the same kernel.)
  __device__ gpu::Pack load_send(const gpu::Pack* p) const {
    gpu::Pack x;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.w[0]), "=r"(x.w[1]), "=r"(x.w[2]), "=r"(x.w[3])
                 : "l"(p)
                 : "memory");
    return x;
  }
  // Peers wrote it while this kernel ran: from L2, the point where their stores arrive.
  __device__ gpu::Pack load_lane(const gpu::Pack* p) const {
    gpu::Pack x;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.w[0]), "=r"(x.w[1]), "=r"(x.w[2]), "=r"(x.w[3])
                 : "l"(p)
                 : "memory");
    return x;
  }
  __device__ void store(gpu::Pack* p, gpu::Pack x) const {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(x.w[0]), "r"(x.w[1]),
                 "r"(x.w[2]), "r"(x.w[3])
                 : "memory");
  }

  __device__ uint64_t load_acquire(const uint64_t* p) const {
    uint64_t v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
  }
  __device__ void store_release(uint64_t* p, uint64_t v) const {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
  }
  __device__ void store_relaxed(uint64_t* p, uint64_t v) const {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
  }
  __device__ uint32_t peek(const uint32_t* p) const {
    uint32_t v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
  }
  __device__ void poke(uint32_t* p, uint32_t v) const {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
  }
  __device__ bool count_in(uint32_t* p, uint32_t n) const {
    uint32_t v;
    asm volatile("atom.inc.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(v)
                 : "l"(p), "r"(n - 1)
                 : "memory");
    return v == n - 1;
  }
  __device__ void fence_system() const { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
  __device__ void fence_device() const { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
  __device__ void spin() const {}

  static __device__ float half_to_float(uint16_t half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
  }
  static __device__ uint16_t float_to_half(float value) {
    uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
  }
  static __device__ uint16_t float_to_bfloat(float value) {
    uint16_t half;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
  }
};

}  // namespace tutti::cuda
