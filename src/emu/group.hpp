// One rank's end of a group on the emulated device.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "emu/machine.hpp"
#include "gpu/device.hpp"
#include "gpu/epoch.hpp"
#include "gpu/lane_pool.hpp"
#include "gpu/linger.hpp"
#include "gpu/plan.hpp"

namespace tutti::emu {

void say(int level, const std::string& text);  // to the services' log
// Of all devices of this process: "rung", "launched", "missed", "lingering"; -1 for other names.
long linger_count(std::string_view name);

// The memory of a process and device that holds the lanes: a memfd, mapped by peers through /proc.
struct Arena {
  int fd = -1;
  char* memory = nullptr;
  gpu::LanePool lanes;
  // Leaked with the arena: a lingering kernel looks at the bell until its window is over.
  std::unique_ptr<gpu::LingerLine> line;
  std::unique_ptr<uint64_t[]> relay;
  std::unique_ptr<gpu::Linger> linger;
};

// What goes into a gpu::Blob.
struct BlobData {
  uint64_t magic = 0;
  uint64_t process = 0;  // nonce of the process
  int32_t pid = 0;
  int32_t fd = -1;
  uint64_t lane_offset = 0;
  uint64_t lane_bytes = 0;
  uint64_t nonce = 0;
  uint64_t address = 0;  // for ranks in one process
  uint32_t cta_budget = 0;
  int32_t device = 0;
};
static_assert(sizeof(BlobData) <= sizeof(gpu::Blob));

// One launch. Its threads hold it until the last of them is out.
struct Launch {
  gpu::KernelArgs args{};
  gpu::KernelId kernel{};
  std::unique_ptr<CtaBarrier[]> barriers;
  std::atomic<uint32_t> running{0};
};

// The same for a lingering kernel.
struct LingerLaunch {
  gpu::LingerArgs args{};
  std::unique_ptr<TeamCta[]> ctas;
};

class Group {
 public:
  static Result<std::unique_ptr<Group>> prepare(const gpu::GroupSpec& spec, gpu::Blob* blob);
  ~Group();
  Status connect(const gpu::Blob* blobs);
  Status start(const gpu::Call& call);
  Poll poll();
  void abort();

 private:
  explicit Group(const gpu::GroupSpec& spec) : spec_(spec) {}
  Status map_peer(const BlobData& blob, uint32_t rank);
  void fill_args(const gpu::Call& call, const gpu::Plan& plan, gpu::KernelArgs& args);
  void clear_other_inbox(uint32_t epoch);
  void launch(std::shared_ptr<Launch> launch, const gpu::Plan& plan);
  bool begin_lingering(const gpu::Call& call, const gpu::Plan& plan, const gpu::KernelArgs& args);
  void launch_lingering();
  Poll poll_lingering();

  gpu::GroupSpec spec_;
  Arena* arena_ = nullptr;
  gpu::Lane lane_;
  char* lanes_[gpu::max_ranks] = {};
  char* mapped_[gpu::max_ranks] = {};  // lanes of other processes, to unmap
  uint64_t mapped_bytes_[gpu::max_ranks] = {};
  gpu::PlanSpace space_;
  gpu::EpochCounter epochs_;
  uint64_t chunks_done_ = 0;
  uint32_t sequence_ = 0;
  std::atomic<uint32_t> done_{0};
  std::atomic<uint32_t> failed_{0};
  std::atomic<uint32_t> abort_{0};
  bool aborted_ = false;
  bool faulted_ = false;
  bool lingering_ = false;  // the call in flight is a lingering kernel's
  std::optional<uint32_t> linger_slot_;
  std::shared_ptr<Launch> current_;
};

}  // namespace tutti::emu
