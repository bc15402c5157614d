// libtutti_emu.so: the function table of gpu/device.hpp filled with CPU code.
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "base/text.hpp"
#include "emu/group.hpp"
#include "emu/memory.hpp"
#include "emu/pool.hpp"
#include "gpu/emu.hpp"

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

Status copy_start(int, void* to, const void* from, size_t bytes, uint64_t* handle) {
  if (refuse(faults().refuse_launch)) {
    say(2, text("copy of {} bytes refused by the test", bytes));
    return Code::no_resource;
  }
  Copies& all = copies();
  uint64_t id;
  {
    std::lock_guard lock(all.mutex);
    id = all.next++;
    all.finished[id] = false;
  }
  void* target = alias(to);
  const void* source = alias(from);
  run([=] {
    Machine pause(0, 1, 0, 1, nullptr, id);  // delays by chance
    if (bytes) std::memcpy(target, source, bytes);
    Copies& all = copies();
    std::lock_guard lock(all.mutex);
    all.finished[id] = true;
  });
  *handle = id;
  return Code::ok;
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
  return end_of(group)->start(call);
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
  return tutti::emu::linger_count(count);
}

extern "C" TUTTI_EMU_API const tutti::gpu::Module* tutti_gpu_module(
    const tutti::gpu::Services* services) {
  if (services) tutti::emu::services = *services;
  return &tutti::emu::table;
}
