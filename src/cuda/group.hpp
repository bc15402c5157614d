// One rank's end of a group on a CUDA device.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/device.hpp"
#include "gpu/epoch.hpp"

namespace tutti::cuda {

// What goes into a gpu::Blob.
struct BlobData {
  uint64_t magic = 0;
  uint64_t process = 0;      // nonce of the process
  uint64_t arena_nonce = 0;  // names the arena, for the cache of imports
  CUipcMemHandle handle{};
  uint64_t arena_address = 0;  // for ranks in one process
  uint64_t lane_offset = 0;
  uint64_t lane_bytes = 0;
  CUuuid uuid{};
  int32_t device = 0;
  uint32_t sms = 0;
  uint32_t mps = 0;
  uint32_t large = 0;  // whether the lane is the process's large one
};
static_assert(sizeof(BlobData) <= sizeof(gpu::Blob));

class Group {
 public:
  static Result<std::unique_ptr<Group>> prepare(const gpu::GroupSpec& spec, gpu::Blob* blob);
  ~Group();
  Status connect(const gpu::Blob* blobs);
  Status start(const gpu::Call& call);
  Poll poll();
  void abort();

 private:
  static uint32_t cta_share(uint32_t sms, bool large);
  // A graph of one kernel node: launching it with new parameters costs 2 us less than a launch
  // (gpu-lab section 1). One a shape.
  struct Graph {
    gpu::KernelId kernel;
    uint32_t ctas;
    uint32_t threads;
    CUgraphNode node;
    CUgraphExec exec;
  };

  explicit Group(const gpu::GroupSpec& spec) : spec_(spec) {}
  Status check_reach(const BlobData& blob, uint32_t rank) const;
  Status map_peer(const BlobData& blob, uint32_t rank);
  void fill_args(const gpu::Call& call, const gpu::Plan& plan, gpu::KernelArgs& args);
  Status clear_other_inbox(uint32_t epoch);
  Status launch(const gpu::Plan& plan, gpu::KernelArgs& args);
  Result<Graph*> graph_for(const gpu::Plan& plan, const CUDA_KERNEL_NODE_PARAMS& params);
  Poll look_for_faults();
  void join_linger(const BlobData* all);
  bool begin_lingering(const gpu::Call& call, const gpu::Plan& plan, const gpu::KernelArgs& args);
  Status launch_lingering();

  gpu::GroupSpec spec_;
  Device* device_ = nullptr;
  gpu::Lane lane_;
  bool has_lane_ = false;
  char* lanes_[gpu::max_ranks] = {};
  CUstream stream_ = nullptr;
  HostLine* line_ = nullptr;
  std::vector<Graph> graphs_;
  size_t next_eviction_ = 0;
  gpu::PlanSpace space_;
  gpu::EpochCounter epochs_;
  uint64_t chunks_done_ = 0;
  uint32_t sequence_ = 0;
  uint32_t polls_ = 0;
  uint64_t next_look_ns_ = 0;
  bool lingering_ = false;  // the call in flight is the lingering kernel's
  std::optional<uint32_t> linger_slot_;
  bool aborted_ = false;
  Code fault_ = Code::ok;
};

}  // namespace tutti::cuda
