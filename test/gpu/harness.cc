#include "harness.hpp"

#include <dlfcn.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <thread>

namespace tutti::testing {

namespace {

constexpr size_t canary_bytes = 256;

class EmulatedMemory : public Memory {
 public:
  explicit EmulatedMemory(void* handle)
      : allocate_(reinterpret_cast<void* (*)(int, int, size_t)>(dlsym(handle, "tutti_emu_alloc"))),
        free_(reinterpret_cast<void (*)(void*)>(dlsym(handle, "tutti_emu_free"))) {}
  void* allocate(gpu::Kind kind, int device, size_t bytes) override {
    return allocate_(static_cast<int>(kind), device, bytes);
  }
  void release(gpu::Kind, void* memory) override { free_(memory); }
  int devices() const override { return gpu::max_group; }
  bool offers(gpu::Kind) const override { return true; }

 private:
  void* (*allocate_)(int, int, size_t);
  void (*free_)(void*);
};

// The program's own use of the driver, as a CUDA program would: initialise, take the primary
// context.
class CudaMemory : public Memory {
 public:
  bool open(std::string* why) {
    handle_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!handle_) {
      *why = dlerror();
      return false;
    }
    auto init = symbol<int(unsigned)>("cuInit");
    auto count = symbol<int(int*)>("cuDeviceGetCount");
    if (init(0) != 0 || count(&devices_) != 0 || devices_ == 0) {
      *why = "the driver finds no device";
      return false;
    }
    return true;
  }
  // The context of a device, made when first used: after the fork, in the rank's own process.
  void use(int device) {
    void* context = nullptr;
    if (symbol<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, device) != 0 ||
        symbol<int(void*)>("cuCtxSetCurrent")(context) != 0)
      std::abort();
  }
  void* allocate(gpu::Kind kind, int device, size_t bytes) override {
    use(device);
    unsigned long long address = 0;
    void* host = nullptr;
    switch (kind) {
      case gpu::Kind::device:
        if (symbol<int(unsigned long long*, size_t)>("cuMemAlloc_v2")(&address, bytes))
          return nullptr;
        return reinterpret_cast<void*>(address);
      case gpu::Kind::managed:
        if (symbol<int(unsigned long long*, size_t, unsigned)>("cuMemAllocManaged")(&address, bytes,
                                                                                    1))
          return nullptr;
        return reinterpret_cast<void*>(address);
      case gpu::Kind::pinned:
        if (symbol<int(void**, size_t, unsigned)>("cuMemHostAlloc")(&host, bytes, 0))
          return nullptr;
        return host;
      case gpu::Kind::host:
        return std::malloc(bytes);
    }
    return nullptr;
  }
  void release(gpu::Kind kind, void* memory) override {
    if (kind == gpu::Kind::host)
      std::free(memory);
    else if (kind == gpu::Kind::pinned)
      symbol<int(void*)>("cuMemFreeHost")(memory);
    else
      symbol<int(unsigned long long)>("cuMemFree_v2")(reinterpret_cast<unsigned long long>(memory));
  }
  int devices() const override { return devices_; }
  bool offers(gpu::Kind) const override { return true; }

 private:
  template <class F>
  F* symbol(const char* name) {
    void* found = dlsym(handle_, name);
    if (!found) std::abort();
    return reinterpret_cast<F*>(found);
  }
  void* handle_ = nullptr;
  int devices_ = 0;
};

}  // namespace

std::unique_ptr<Memory> emulated_memory(const std::string& module_path, std::string* why) {
  void* handle = dlopen(module_path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    *why = dlerror();
    return nullptr;
  }
  return std::make_unique<EmulatedMemory>(handle);
}

std::unique_ptr<Memory> cuda_memory(std::string* why) {
  auto memory = std::make_unique<CudaMemory>();
  if (!memory->open(why)) return nullptr;
  return memory;
}

Job::Job(Control* control, int rank, int nranks, const gpu::Module* module, Memory* memory)
    : control_(control),
      rank_(rank),
      nranks_(nranks),
      device_(rank % memory->devices()),
      module_(module),
      memory_(memory) {
  // The program has a context before the first call into the module, as in real life.
  memory_->release(gpu::Kind::device, memory_->allocate(gpu::Kind::device, device_, 64));
}

void Job::barrier() {
  ++phase_;
  control_->barrier[rank_].value.store(phase_, std::memory_order_release);
  for (int r = 0; r < nranks_; ++r)
    while (control_->barrier[r].value.load(std::memory_order_acquire) < phase_) {
      if (control_->failed.load(std::memory_order_relaxed)) _exit(1);
      sched_yield();
    }
}

void Job::enter(int group, uint64_t call) {
  control_->gate[group][rank_].value.store(call, std::memory_order_release);
}

bool Job::gate_closed(int group, uint64_t call) const {
  for (int r = 0; r < nranks_; ++r)
    if (control_->gate[group][r].value.load(std::memory_order_acquire) < call) return false;
  return true;
}

void Job::gate(int group, uint64_t call) {
  enter(group, call);
  for (uint32_t turn = 1; !gate_closed(group, call); ++turn)
    if (turn % 256 == 0) {
      if (control_->failed.load(std::memory_order_relaxed)) _exit(1);
      sched_yield();
    }
}

Status Job::make_group(gpu::GroupSpec spec, gpu::Group** group) {
  spec.nranks = nranks_;
  spec.rank = rank_;
  spec.device = device_;
  *group = nullptr;
  Status status = module_->prepare(spec, group, &control_->blobs[rank_]);
  const auto agree = [&] {
    control_->word[rank_].value.store(static_cast<uint64_t>(status.code()),
                                      std::memory_order_release);
    barrier();
    Status worst = status;
    for (int r = 0; r < nranks_; ++r) {
      auto code = static_cast<Code>(control_->word[r].value.load(std::memory_order_acquire));
      if (code != Code::ok) worst = code;
    }
    barrier();
    return worst;
  };
  Status worst = agree();
  if (worst.ok()) {
    status = module_->connect(*group, control_->blobs);
    worst = agree();
  }
  if (!worst.ok() && *group) {
    module_->close(*group);
    *group = nullptr;
  }
  return worst;
}

double Job::worst(double value) {
  control_->times[rank_][0] = value;
  barrier();
  double worst = value;
  for (int r = 0; r < nranks_; ++r) worst = std::max(worst, control_->times[r][0]);
  barrier();
  return worst;
}

void Job::fail(const std::string& message) {
  std::fprintf(stderr, "FAILED rank %d: %s\n", rank_, message.c_str());
  std::fflush(stderr);
  control_->failed.store(1);
  _exit(1);
}

Buffer::Buffer(Job& job, gpu::Kind kind, size_t bytes, size_t offset)
    : job_(job), kind_(kind), bytes_(bytes), front_(canary_bytes + offset) {
  shadow_.resize(front_ + bytes + canary_bytes);
  memory_ = static_cast<char*>(job.memory().allocate(kind, job.device(), shadow_.size()));
  if (!memory_) job.fail("no memory for a buffer");
}

Buffer::~Buffer() {
  job_.memory().release(kind_, memory_);
}

void Buffer::put(const void* host) {
  for (size_t i = 0; i < front_; ++i) shadow_[i] = static_cast<uint8_t>(0xa0 ^ i);
  for (size_t i = front_ + bytes_; i < shadow_.size(); ++i)
    shadow_[i] = static_cast<uint8_t>(0xc5 ^ i);
  if (bytes_) std::memcpy(shadow_.data() + front_, host, bytes_);
  if (!job_.module().copy(job_.device(), memory_, shadow_.data(), shadow_.size()).ok())
    job_.fail("copy to the device failed");
}

bool Buffer::get(void* host) {
  std::vector<uint8_t> now(shadow_.size());
  if (!job_.module().copy(job_.device(), now.data(), memory_, now.size()).ok())
    job_.fail("copy from the device failed");
  if (bytes_) std::memcpy(host, now.data() + front_, bytes_);
  return std::memcmp(now.data(), shadow_.data(), front_) == 0 &&
         std::memcmp(now.data() + front_ + bytes_, shadow_.data() + front_ + bytes_,
                     canary_bytes) == 0;
}

double now_seconds() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

int run_ranks(int nranks, unsigned limit_seconds, const std::function<int(Control*, int)>& body) {
  void* memory =
      mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto* control = new (memory) Control;
  std::vector<pid_t> children;
  std::fflush(nullptr);
  for (int rank = 0; rank < nranks; ++rank) {
    pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      alarm(limit_seconds);
      int result = body(control, rank);
      if (result != 0) control->failed.store(1);
      std::fflush(nullptr);
      _exit(result);
    }
    children.push_back(child);
  }
  int result = 0;
  for (size_t left = children.size(); left > 0; --left) {
    int status = 0;
    pid_t child = wait(&status);
    if (child < 0) break;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (WIFSIGNALED(status))
      std::fprintf(stderr, "FAILED a rank ended by signal %d%s\n", WTERMSIG(status),
                   WTERMSIG(status) == SIGALRM ? " (time limit)" : "");
    result = result ? result : WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    control->failed.store(1);
  }
  munmap(memory, sizeof(Control));
  return result;
}

int run_threads(int nranks, const std::function<int(Control*, int)>& body) {
  auto control = std::make_unique<Control>();
  std::atomic<int> result{0};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < nranks; ++rank)
    ranks.emplace_back([&, rank] {
      if (int outcome = body(control.get(), rank)) result.store(outcome);
    });
  for (std::thread& rank : ranks) rank.join();
  return result.load();
}

}  // namespace tutti::testing
