// libtutti_emu.so: the function table of gpu/device.hpp filled with CPU code.
#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "base/text.hpp"
#include "emu/group.hpp"
#include "emu/memory.hpp"
#include "emu/pool.hpp"
#include "gpu/emu.hpp"
#include "gpu/kernel/pack.hpp"
#include "gpu/scratch_pool.hpp"

namespace tutti::emu {

namespace {

using namespace tutti::gpu;

Services services;

emu::Group* end_of(gpu::Group* group) {
  return reinterpret_cast<emu::Group*>(group);
}

bool live() {
  return true;
}

void query(const void* const* pointers, int n, Pointer* out) {
  for (int i = 0; i < n; ++i) out[i] = find(pointers[i]);
}

Status uuid(int device, DeviceUuid* out) {
  std::memset(out->bytes, 0, sizeof out->bytes);
  std::memcpy(out->bytes, "emulated", 8);
  std::memcpy(out->bytes + 8, &device, sizeof device);
  return Code::ok;
}

Status copy(int, void* to, const void* from, size_t bytes) {
  if (bytes) std::memcpy(alias(to), alias(from), bytes);
  return Code::ok;
}

// Copies under way: their end is noted by the thread that makes them.
struct Copies {
  std::mutex mutex;
  std::unordered_map<uint64_t, bool> finished;
  uint64_t next = 1;
};
Copies& copies() {
  static Copies& all = *new Copies;
  return all;
}

// Does the work on a thread of its own, after a delay by chance.
template <class Work>
uint64_t begin(Work work) {
  Copies& all = copies();
  uint64_t id;
  {
    std::lock_guard lock(all.mutex);
    id = all.next++;
    all.finished[id] = false;
  }
  run([=] {
    Machine pause(0, 1, 0, 1, nullptr, id);
    work();
    Copies& all = copies();
    std::lock_guard lock(all.mutex);
    all.finished[id] = true;
  });
  return id;
}

Status copy_start(int, void* to, const void* from, size_t bytes, uint64_t* handle) {
  if (refuse(faults().refuse_launch)) {
    say(2, text("copy of {} bytes refused by the test", bytes));
    return Code::no_resource;
  }
  void* target = alias(to);
  const void* source = alias(from);
  *handle = begin([=] {
    if (bytes) std::memcpy(target, source, bytes);
  });
  return Code::ok;
}

std::atomic<long> packings{0};
std::atomic<long> calls_started{0};

// A grid of teams of one thread, one after the other: no thread of it waits.
Status pack_start(int, const PackCall& call, uint64_t* handle) {
  constexpr uint32_t ctas = 3;
  constexpr uint32_t threads = 2;
  if (refuse(faults().refuse_launch)) {
    say(2, text("packing of {} strips refused by the test", call.count));
    return Code::no_resource;
  }
  packings.fetch_add(1, std::memory_order_relaxed);
  PackArgs args{};
  args.program = static_cast<char*>(alias(call.program));
  args.packed = static_cast<char*>(alias(call.packed));
  args.strips = static_cast<const Strip*>(alias(call.strips));
  args.count = call.count;
  args.unpack = call.unpack;
  *handle = begin([=] {
    for (uint32_t cta = 0; cta < ctas; ++cta)
      for (uint32_t thread = 0; thread < threads; ++thread)
        pack_kernel<Machine, 1>(Machine(thread, threads, cta, ctas, nullptr, cta), args);
  });
  return Code::ok;
}

struct Scratch {
  std::mutex mutex;
  char* memory = nullptr;
  ScratchPool pool{scratch_bytes};
};
Scratch& scratch(int device) {
  static std::mutex mutex;
  static auto& all = *new std::unordered_map<int, Scratch>;
  std::lock_guard lock(mutex);
  return all[device];
}

Status take_memory(int device, size_t bytes, void** memory) {
  Scratch& own = scratch(device);
  std::lock_guard lock(own.mutex);
  if (own.memory == nullptr)
    own.memory =
        static_cast<char*>(tutti_emu_alloc(static_cast<int>(Kind::device), device, scratch_bytes));
  if (own.memory == nullptr) return Code::no_resource;
  std::optional<uint64_t> at = own.pool.take(bytes);
  if (!at) return Code::no_resource;
  *memory = own.memory + *at;
  return Code::ok;
}

void give_memory(int device, void* memory) {
  Scratch& own = scratch(device);
  std::lock_guard lock(own.mutex);
  own.pool.give_back(static_cast<uint64_t>(static_cast<char*>(memory) - own.memory));
}

Poll copy_poll(uint64_t handle) {
  Copies& all = copies();
  std::lock_guard lock(all.mutex);
  auto found = all.finished.find(handle);
  if (found == all.finished.end()) return Poll::failed(Code::bad_argument);
  if (!found->second) return Poll::busy();
  all.finished.erase(found);
  return Poll::done();
}

Status host_register(void*, size_t) {
  return Code::ok;
}

void host_unregister(void*) {}

Status prepare(const GroupSpec& spec, gpu::Group** group, Blob* blob) {
  Result<std::unique_ptr<emu::Group>> made = emu::Group::prepare(spec, blob);
  if (!made.ok()) return made.status();
  *group = reinterpret_cast<gpu::Group*>(made->release());
  return Code::ok;
}

Status connect(gpu::Group* group, const Blob* blobs) {
  return end_of(group)->connect(blobs);
}

Status start(gpu::Group* group, const Call& call) {
  const Status started = end_of(group)->start(call);
  if (started.ok()) calls_started.fetch_add(1, std::memory_order_relaxed);
  return started;
}

Poll poll(gpu::Group* group) {
  return end_of(group)->poll();
}

void abort(gpu::Group* group) {
  end_of(group)->abort();
}

void close(gpu::Group* group) {
  delete end_of(group);
}

constexpr Module table = {.abi = abi_version,
                          .name = "emu",
                          .live = live,
                          .query = query,
                          .uuid = uuid,
                          .copy = copy,
                          .copy_start = copy_start,
                          .copy_poll = copy_poll,
                          .pack_start = pack_start,
                          .take_memory = take_memory,
                          .give_memory = give_memory,
                          .host_register = host_register,
                          .host_unregister = host_unregister,
                          .prepare = prepare,
                          .connect = connect,
                          .start = start,
                          .poll = poll,
                          .abort = abort,
                          .close = close};

}  // namespace

void say(int level, const std::string& text) {
  if (services.log) services.log(level, "emu", text.c_str());
}

}  // namespace tutti::emu

long tutti_emu_get(const char* count) {
  if (std::strcmp(count, "packed") == 0) return tutti::emu::packings.load();
  if (std::strcmp(count, "started") == 0) return tutti::emu::calls_started.load();
  return tutti::emu::linger_count(count);
}

extern "C" TUTTI_EMU_API const tutti::gpu::Module* tutti_gpu_module(
    const tutti::gpu::Services* services) {
  if (services) tutti::emu::services = *services;
  return &tutti::emu::table;
}
