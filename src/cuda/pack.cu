// The kernel that packs and unpacks; its teams are warps.
#include "cuda/machine.cuh"
#include "gpu/kernel/pack.hpp"

namespace tutti::gpu {

extern "C" __global__ void __launch_bounds__(256)
    tutti_pack(const __grid_constant__ PackArgs args) {
  pack_kernel<cuda::Machine, 32>(cuda::Machine(), args);
}

}  // namespace tutti::gpu
