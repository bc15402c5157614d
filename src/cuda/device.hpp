// What tutti holds on one device: kernels, lanes, completion lines, copy streams. Made when a group
// or a copy first needs it, kept until the process ends.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "cuda/driver.hpp"
#include "gpu/lane_pool.hpp"
#include "gpu/linger.hpp"
#include "gpu/plan.hpp"
#include "gpu/scratch_pool.hpp"

namespace tutti::cuda {

// Words through which the host and the kernels of a group talk, each in a line of its own, in
// pinned memory.
struct HostLine {
  alignas(64) uint32_t done;
  alignas(64) uint32_t failed;
  alignas(64) uint32_t abort;
};

class Device {
 public:
  int ordinal = -1;
  CUdevice handle = 0;
  CUcontext context = nullptr;  // the primary one: where the runtime's memory lives
  CUuuid uuid{};
  uint32_t sms = 0;
  bool mps = false;
  CUfunction kernels[gpu::kernel_count] = {};
  CUfunction pack_kernel = nullptr;
  CUstream copy_streams[2] = {};
  CUstream control = nullptr;  // for abort words: never behind a waiting kernel

  // Lanes: one allocation, exported once. Guarded by lock_devices().
  CUdeviceptr arena = 0;
  CUipcMemHandle arena_handle{};
  uint64_t arena_nonce = 0;
  gpu::LanePool lanes;
  // For packed buffers; made with the lanes, never exported. 0: there is none.
  CUdeviceptr scratch = 0;
  gpu::ScratchPool scratch_pool{gpu::scratch_bytes};

  // The lingering kernel: its host's end, and the stream that it alone runs on.
  gpu::Linger linger;
  CUstream linger_stream = nullptr;

  Status load_kernels();
  // The kernel that packs; by the first call, with the lock held.
  Status load_pack();
  // Makes lingering possible; by the first group that wants it, with the lock held.
  Status open_linger();
  // Launches the kernel for the command that linger holds. By its owner, in the device's context.
  Status launch_linger();
  Status make_arena(uint64_t lane_bytes);
  Result<HostLine*> take_line();
  void give_back(HostLine* line) { free_lines_.push_back(line); }

 private:
  // A kernel as a graph of one node: see Group::Graph.
  struct LingerKernel {
    CUfunction function = nullptr;
    CUgraphNode node = nullptr;
    CUgraphExec exec = nullptr;
  };
  static CUDA_KERNEL_NODE_PARAMS linger_params(const LingerKernel& kernel, void** parameters,
                                               bool two, uint32_t ctas);

  std::vector<HostLine*> free_lines_;
  LingerKernel linger_kernels_[2];  // for two ranks, for more
};

// Of all devices: "rung", "launched" or "missed" of gpu::Linger; -1 for other names.
long linger_count(const char* name);

std::unique_lock<std::mutex> lock_devices();
// The device of that ordinal, with its context and copy streams; with the lock held.
Result<Device*> device(int ordinal);
uint64_t random_number();
// The same in one process, different between processes (process ids repeat between containers).
uint64_t process_nonce();
// A context in which a query of pointers can be made by a thread that has none; nullptr if none
// lives.
CUcontext any_context();

}  // namespace tutti::cuda
