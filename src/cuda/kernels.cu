// The kernels: each body of gpu/kernel/*.hpp wrapped into one entry point "tutti_<name>".
#include "cuda/machine.cuh"
#include "gpu/kernel/ll.hpp"
#include "gpu/kernel/push.hpp"

namespace tutti::gpu {
namespace {
using M = cuda::Machine;
}

#define TUTTI_KERNEL(name, threads, body)                                 \
  extern "C" __global__ void __launch_bounds__(threads, 1)                   \
      tutti_##name(const __grid_constant__ KernelArgs args) {             \
    body(M(), args);                                                      \
  }
#include "gpu/kernels.def"
#undef TUTTI_KERNEL

}  // namespace tutti::gpu
