#include "pml/module.hpp"

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "base/text.hpp"

namespace tutti::net {

namespace {

constexpr const char* area = "net";
constexpr std::string_view option_prefix = "TUTTI_UCX_";

void log_line(int level, const char* where, const char* message) {
  if (log::threshold.load(std::memory_order_relaxed) >= static_cast<log::Level>(level))
    log::write(static_cast<log::Level>(level), where, message);
}

constexpr Services services = {log_line};

// Keeps every signal's disposition and the alternate stack over its lifetime. The real-time signals
// that libc owns cannot be read and are skipped.
class KeptSignals {
 public:
  KeptSignals() {
    for (size_t i = 1; i < actions_.size(); ++i)
      known_[i] = sigaction(static_cast<int>(i), nullptr, &actions_[i]) == 0;
    has_stack_ = sigaltstack(nullptr, &stack_) == 0;
  }
  ~KeptSignals() {
    for (size_t i = 1; i < actions_.size(); ++i) {
      if (!known_[i] || i == SIGKILL || i == SIGSTOP) continue;
      struct sigaction now {};
      if (sigaction(static_cast<int>(i), nullptr, &now) != 0) continue;
      if (now.sa_sigaction == actions_[i].sa_sigaction && now.sa_flags == actions_[i].sa_flags)
        continue;
      sigaction(static_cast<int>(i), &actions_[i], nullptr);
    }
    if (has_stack_) sigaltstack(&stack_, nullptr);
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  std::array<struct sigaction, _NSIG> actions_{};
  std::array<bool, _NSIG> known_{};
  stack_t stack_{};
  bool has_stack_ = false;
};

// Shows the loader's constructors an environment with a few more variables. UCX reads some settings
// only while it is loaded, and one of them is needed: its memory hooks rewrite the first bytes of
// mmap, munmap and others in the running program (law 4). What the user has set stays. setenv would
// move the array that getenv of another thread may be reading: here both arrays stay valid for
// ever.
class LoadEnvironment {
 public:
  LoadEnvironment() : saved_(environ) {
    static std::vector<std::string> strings;
    static std::vector<char*> pointers;
    if (strings.empty()) {
      strings = process_environment();
      for (const char* setting : settings) {
        const std::string_view name(setting, std::strchr(setting, '=') + 1);
        if (std::ranges::none_of(strings, [&](auto& entry) { return entry.starts_with(name); }))
          strings.emplace_back(setting);
      }
      for (std::string& entry : strings) pointers.push_back(entry.data());
      pointers.push_back(nullptr);
    }
    environ = pointers.data();
  }
  ~LoadEnvironment() { environ = saved_; }
  LoadEnvironment(const LoadEnvironment&) = delete;
  LoadEnvironment& operator=(const LoadEnvironment&) = delete;

 private:
  static constexpr const char* settings[] = {"UCX_MEM_EVENTS=n", "UCX_HANDLE_ERRORS=none"};
  char** saved_;
};

// Beside this library (the build tree), in its package folder, and, for programs that link the core
// statically, in the build tree's .libs.
std::vector<std::string> module_folders() {
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&module_folders), &self) == 0 || !self.dli_fname) return {};
  std::string file = self.dli_fname;
  size_t slash = file.rfind('/');
  std::string folder = slash == std::string::npos ? "." : file.substr(0, slash);
  return {folder + "/tutti", folder, folder + "/.libs"};
}

std::vector<std::string> places_of(const std::string& name) {
  std::vector<std::string> paths;
  for (const std::string& folder : module_folders())
    paths.push_back(text("{}/libtutti_{}.so", folder, name));
  return paths;
}

// Opens one file; on failure `why` says what the loader said.
Result<const Module*> open_file(const std::string& path, std::string& why) {
  KeptSignals kept;
  void* handle = nullptr;
  {
    LoadEnvironment quiet;
    handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (!handle) {
    const char* message = dlerror();
    why = message ? message : path;
    return Code::no_resource;
  }
  auto entry = reinterpret_cast<ModuleEntry>(dlsym(handle, module_symbol));
  const Module* module = entry ? entry(&services) : nullptr;
  if (!entry) {
    TUTTI_WARN(area, "{} is no network module: it lacks {}", path, module_symbol);
  } else if (module && module->abi != abi_version) {
    TUTTI_WARN(area, "{} has interface {}, this library {}: install both from one build", path,
               module->abi, abi_version);
    module = nullptr;
  }
  if (!module) return Code::unsupported;
  TUTTI_INFO(area, "network module {} {} from {}", module->name, module->version, path);
  return module;
}

}  // namespace

Result<const Module*> open_module(const std::string& choice) {
  std::vector<std::string> paths = {choice};
  if (choice.find('/') == std::string::npos) {
    paths = places_of(choice);
  }
  std::string tried;
  for (const std::string& path : paths) {
    std::string why;
    Result<const Module*> opened = open_file(path, why);
    if (opened.ok() || opened.status() != Status(Code::no_resource)) return opened;
    tried += (tried.empty() ? "" : "; ") + why;
  }
  TUTTI_WARN(area, "cannot open network module \"{}\": {}", choice, tried);
  return Code::no_resource;
}

bool installed(const std::string& name) {
  return std::ranges::any_of(
      places_of(name), [](const std::string& path) { return access(path.c_str(), R_OK) == 0; });
}

bool rdma_devices() {
  std::error_code error;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", error);
  return !error && devices != std::filesystem::directory_iterator();
}

Result<Network*> open_network(const Module& module, const Config& config, bool several_threads) {
  std::vector<std::string> names;
  for (const std::string& entry : process_environment()) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos && entry.starts_with(option_prefix))
      names.push_back(entry.substr(option_prefix.size(), equals - option_prefix.size()));
  }
  std::vector<const char*> pointers;
  for (const std::string& name : names) pointers.push_back(name.c_str());
  pointers.push_back(nullptr);
  Options options;
  options.devices = config.net_devices.c_str();
  options.user_options = pointers.data();
  options.several_threads = several_threads;
  KeptSignals kept;
  Network* network = nullptr;
  if (Status status = module.open(options, &network); !status.ok()) return status;
  return network;
}

}  // namespace tutti::net
