#include "comm/process.hpp"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>

#include "base/log.hpp"
#include "gpu/module.hpp"

namespace tutti {

namespace {

bool machine_has_device(const Config& config) {
  if (config.gpu_module == "none") return false;
  if (config.gpu_module != "auto" && config.gpu_module != "cuda") return true;
  std::error_code ignored;
  if (std::filesystem::exists("/dev/nvidiactl", ignored)) return true;
  // WSL has no device files of that name.
  return std::filesystem::exists("/dev/dxg", ignored);
}

// Whether a debugger holds this process: it may stop a kernel, or step over launches one by one.
bool is_traced() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("TracerPid:")) return line.find_first_of("123456789") != std::string::npos;
  return false;
}

uint64_t allowed_linger_ns(const Config& config) {
  if (config.gpu_linger_ns == 0) return 0;
  std::optional<std::string> why = launches_wait(process_environment());
  if (!why && is_traced()) why = "a debugger";
  if (!why) return config.gpu_linger_ns;
  TUTTI_INFO("comm", "no kernel stays after small calls in this process, because of {}", *why);
  return 0;
}

}  // namespace

Process::Process(const Config& config)
    : config_(config), device_possible_(machine_has_device(config)) {
  std::array<char, 65> name{};
  gethostname(name.data(), name.size() - 1);
  host_name_ = name.data();
  // A fault has ended the job at MPI_Init.
  if (auto table = read_tuning_file(config.table); table.ok()) tuning_file_ = std::move(*table);
  // A module that was asked for and does not open has been logged; the rank then has no device, and
  // says so in its set-up record.
  if (!gpu::choose(config.gpu_module).ok()) device_possible_ = false;
  if (device_possible_) gpu_linger_ns_ = allowed_linger_ns(config);
}

Process& Process::get(const Config& config) {
  // Leaked on purpose: communicators may outlive static destructors.
  static Process* process = new Process(config);
  return *process;
}

Result<shm::SlotPool*> Process::slots() {
  const std::lock_guard guard(mutex_);
  if (!slots_) {
    auto pool = shm::SlotPool::create(config_.shm_lane_bytes);
    if (!pool.ok()) return pool.status();
    slots_ = std::move(*pool);
  }
  return slots_.get();
}

const gpu::Module* Process::live_module() const {
  if (!device_possible_) return nullptr;
  const gpu::Module& module = gpu::module();
  return module.live() ? &module : nullptr;
}

}  // namespace tutti
