// Process: what all communicators of this process share: its segment, its network, its view of the
// machine, the GPU module. Made when the first communicator needs it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/config.hpp"
#include "base/status.hpp"
#include "comm/fabric.hpp"
#include "comm/tuning_file.hpp"
#include "gpu/device.hpp"
#include "shm/board.hpp"

namespace tutti {

class Process {
 public:
  // The process's one instance. The first call decides the settings.
  static Process& get(const Config& config);

  // The slots of this process, made at the first call; no_memory when the kernel refuses.
  Result<shm::SlotPool*> slots();
  Fabric& fabric() { return fabric_; }
  // Whether a buffer of this process could be device memory, now or later in its life: an NVIDIA
  // device file is visible, or the settings name a module. Decides the class of communicators, so
  // it must not depend on what the program has loaded so far.
  bool device_possible() const { return device_possible_; }
  // The GPU module if the program's driver is live, else nullptr. Costs a few ns.
  const gpu::Module* live_module() const;

  // How long a kernel may stay after a small call: the setting, or 0 where something in this process
  // makes that a hazard.
  uint64_t gpu_linger_ns() const { return gpu_linger_ns_; }

  const TuningFile& tuning_file() const { return tuning_file_; }

  const std::string& host_name() const { return host_name_; }

 private:
  explicit Process(const Config& config);
  const Config& config_;
  // Threads may set up their first communicators at once.
  std::mutex mutex_;
  std::unique_ptr<shm::SlotPool> slots_;
  Fabric fabric_;
  bool device_possible_ = false;
  uint64_t gpu_linger_ns_ = 0;
  std::string host_name_;
  TuningFile tuning_file_;
};

}  // namespace tutti
