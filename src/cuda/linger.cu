// The lingering kernels, for two ranks and for more, apart from the others: whoever changes one of
// both files waits only for its own. Their threads are the workers and the team of gpu/tuning.hpp.
#include "cuda/team.cuh"
#include "gpu/kernel/linger.hpp"

namespace tutti::gpu {

extern "C" __global__ void __launch_bounds__(512, 1)
    tutti_linger_2(const __grid_constant__ LingerArgs args) {
  cuda::Team team;
  linger_kernel<cuda::Team, 2>(team, args);
}

extern "C" __global__ void __launch_bounds__(256, 1)
    tutti_linger_8(const __grid_constant__ LingerArgs args) {
  cuda::Team team;
  linger_kernel<cuda::Team, 8>(team, args);
}

}  // namespace tutti::gpu
