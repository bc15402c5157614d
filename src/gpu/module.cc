#include "gpu/module.hpp"

#include <dlfcn.h>
#include <link.h>
#include <time.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "base/log.hpp"
#include "base/text.hpp"

namespace tutti::gpu {

namespace {

constexpr const char* area = "gpu";

void log_line(int level, const char* where, const char* message) {
  if (log::threshold.load(std::memory_order_relaxed) >= static_cast<log::Level>(level))
    log::write(static_cast<log::Level>(level), where, message);
}

constexpr Services services = {log_line};

// Where modules lie: beside this library (the build tree), in its package folder, and, for programs
// that link the core statically, in the build tree's .libs.
std::vector<std::string> module_folders() {
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&module_folders), &self) == 0 || !self.dli_fname) return {};
  std::string file = self.dli_fname;
  size_t slash = file.rfind('/');
  std::string folder = slash == std::string::npos ? "." : file.substr(0, slash);
  return {folder + "/tutti", folder, folder + "/.libs"};
}

Result<const Module*> open_file(const std::string& path, bool must_exist) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    if (must_exist) TUTTI_WARN(area, "cannot open GPU module: {}", dlerror());
    return Code::no_device;
  }
  auto entry = reinterpret_cast<ModuleEntry>(dlsym(handle, module_symbol));
  if (!entry) {
    TUTTI_WARN(area, "{} is no GPU module: it lacks {}", path, module_symbol);
    return Code::bad_setting;
  }
  const Module* module = entry(&services);
  if (!module) return Code::no_device;
  if (module->abi != abi_version) {
    TUTTI_WARN(area, "{} has interface {}, this library {}: install both from one build", path,
               module->abi, abi_version);
    return Code::bad_setting;
  }
  TUTTI_INFO(area, "GPU module {} from {}", module->name, path);
  return module;
}

// How often this process has loaded libraries; changes only when dlopen loads something.
unsigned long long load_count() {
  unsigned long long count = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        *static_cast<unsigned long long*>(out) = info->dlpi_adds;
        return 1;  // the first object tells it: stop
      },
      &count);
  return count;
}

// The tick of a clock that costs 8 ns to read (the time stamp counter 20 ns). One "no device memory" stands
// for the calls of the same tick, 1-4 ms, in which no program loads the driver, initialises it and makes a
// context (tens of milliseconds). A look costs 40 ns where the driver is not in the process (the loader's
// lock) or has no context, more than all else in a call that passes through. 0: look each time.
uint64_t tick() {
  timespec now{};
  static const bool fine = clock_getres(CLOCK_MONOTONIC_COARSE, &now) == 0 && now.tv_sec == 0 &&
                           now.tv_nsec <= 4'000'000;
  if (!fine || clock_gettime(CLOCK_MONOTONIC_COARSE, &now) != 0) return 0;
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

struct State {
  std::mutex mutex;
  std::atomic<bool> live{false};       // for good
  std::atomic<uint64_t> absent_at{0};  // tick() before the last look that found nothing; 0: none
  std::atomic<const Module*> module{nullptr};  // nullptr: look for one
  std::atomic<unsigned long long> looked_at{0};
};

State& state() {
  static State all;
  return all;
}

// "auto": the CUDA module as soon as the driver is in the process.
const Module& look_for_driver(State& all) {
  const unsigned long long loads = load_count();
  if (all.looked_at.load(std::memory_order_acquire) == loads) return null_module();
  std::lock_guard lock(all.mutex);
  if (const Module* module = all.module.load(std::memory_order_acquire)) return *module;
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (!driver) {
    all.looked_at.store(loads, std::memory_order_release);
    return null_module();
  }
  Result<const Module*> opened = open_module("cuda");
  dlclose(driver);
  // Said once by open_module; from here on the process has no GPU for tutti.
  const Module* module = opened.ok() ? *opened : &null_module();
  all.module.store(module, std::memory_order_release);
  return *module;
}

}  // namespace

const Module& null_module() {
  static constexpr Module table = {
      .abi = abi_version,
      .name = "none",
      .live = [] { return false; },
      .query =
          [](const void* const*, int n, Pointer* out) {
            for (int i = 0; i < n; ++i) out[i] = Pointer{};
          },
      .uuid = [](int, DeviceUuid*) -> Status { return Code::no_device; },
      .copy = [](int, void*, const void*, size_t) -> Status { return Code::no_device; },
      .copy_start = [](int, void*, const void*, size_t, uint64_t*) -> Status {
        return Code::no_device;
      },
      .copy_poll = [](uint64_t) { return Poll::failed(Code::no_device); },
      .pack_start = [](int, const PackCall&, uint64_t*) -> Status { return Code::no_device; },
      .take_memory = [](int, size_t, void**) -> Status { return Code::no_device; },
      .give_memory = [](int, void*) {},
      .host_register = [](void*, size_t) -> Status { return Code::no_device; },
      .host_unregister = [](void*) {},
      .prepare = [](const GroupSpec&, Group**, Blob*) -> Status { return Code::no_device; },
      .connect = [](Group*, const Blob*) -> Status { return Code::no_device; },
      .start = [](Group*, const Call&) -> Status { return Code::no_device; },
      .poll = [](Group*) { return Poll::failed(Code::no_device); },
      .abort = [](Group*) {},
      .close = [](Group*) {}};
  return table;
}

Result<const Module*> open_module(std::string_view choice) {
  if (choice.find('/') != std::string_view::npos) return open_file(std::string(choice), true);
  const std::string file = text("libtutti_{}.so", choice);
  std::string tried;
  for (const std::string& folder : module_folders()) {
    const std::string path = folder + "/" + file;
    Result<const Module*> opened = open_file(path, false);
    if (opened.ok() || opened.status() != Status(Code::no_device)) return opened;
    const char* why = dlerror();
    tried += text("{}{}", tried.empty() ? "" : "; ", why ? why : path.c_str());
  }
  TUTTI_WARN(area, "cannot open GPU module \"{}\": {}", choice, tried);
  return Code::no_device;
}

Status choose(std::string_view setting) {
  State& all = state();
  std::lock_guard lock(all.mutex);
  all.live.store(false, std::memory_order_relaxed);
  all.absent_at.store(0, std::memory_order_relaxed);
  if (setting.empty() || setting == "auto") {
    all.module.store(nullptr, std::memory_order_release);
    all.looked_at.store(0, std::memory_order_release);
    return Code::ok;
  }
  all.module.store(&null_module(), std::memory_order_release);
  if (setting == "none") return Code::ok;
  if (setting != "cuda" && setting != "emu" && setting.find('/') == std::string_view::npos) {
    TUTTI_ERROR(area, "GPU module \"{}\" is unknown: auto, cuda, emu, none, or a path with a /",
                setting);
    return Code::bad_setting;
  }
  Result<const Module*> opened = open_module(setting);
  if (!opened.ok()) return Code::bad_setting;
  all.module.store(*opened, std::memory_order_release);
  return Code::ok;
}

bool live() {
  State& all = state();
  if (all.live.load(std::memory_order_relaxed)) return true;
  const uint64_t now = tick();
  if (now != 0 && now == all.absent_at.load(std::memory_order_relaxed)) return false;
  const bool found = module().live();
  if (found)
    all.live.store(true, std::memory_order_relaxed);
  else
    all.absent_at.store(now, std::memory_order_relaxed);
  return found;
}

const Module& module() {
  State& all = state();
  if (const Module* module = all.module.load(std::memory_order_acquire)) return *module;
  return look_for_driver(all);
}

}  // namespace tutti::gpu
