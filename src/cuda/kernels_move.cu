// The kernels of gpu/kernels_move.def, wrapped as those of kernels.cu.
#include "cuda/machine.cuh"
#include "gpu/kernel/move.hpp"

namespace tutti::gpu {
namespace {
using M = cuda::Machine;
}

#define TUTTI_KERNEL(name, threads, body)                                 \
  extern "C" __global__ void __launch_bounds__(threads, 1)                   \
      tutti_##name(const __grid_constant__ KernelArgs args) {             \
    body(M(), args);                                                      \
  }
#include "gpu/kernels_move.def"
#undef TUTTI_KERNEL

}  // namespace tutti::gpu
