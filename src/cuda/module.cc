// libtutti_cuda.so: the function table of gpu/device.hpp on the CUDA driver.
#include <algorithm>
#include <cstring>

#include "cuda/copy.hpp"
#include "cuda/group.hpp"
#include "cuda/knobs.hpp"

namespace tutti::cuda {

namespace {

using namespace tutti::gpu;

bool live() {
  static std::atomic<bool> initialised{false};
  if (initialised.load(std::memory_order_relaxed)) return true;
  CUcontext context = nullptr;
  if (cu().cuCtxGetCurrent(&context) != CUDA_SUCCESS) return false;
  initialised.store(true, std::memory_order_relaxed);
  return true;
}

// The plural query knows no error for a pointer that the driver does not know: 0.1 us instead of
// the 0.6-1.0 us of the singular one (gpu-lab section 4).
CUresult attributes_of(const void* pointer, Pointer* out) {
  unsigned type = 0;
  int managed = 0, ordinal = -1;
  unsigned long long id = 0;
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_BUFFER_ID};
  void* values[] = {&type, &managed, &ordinal, &id};
  CUresult result =
      cu().cuPointerGetAttributes(4, names, values, reinterpret_cast<CUdeviceptr>(pointer));
  if (result != CUDA_SUCCESS) return result;
  if (managed)
    *out = {Kind::managed, ordinal, id};
  else if (type == CU_MEMORYTYPE_DEVICE)
    *out = {Kind::device, ordinal, id};
  else if (type == CU_MEMORYTYPE_HOST)
    *out = {Kind::pinned, -1, id};
  return CUDA_SUCCESS;
}

void query(const void* const* pointers, int n, Pointer* out) {
  for (int i = 0; i < n; ++i) {
    out[i] = Pointer{};
    if (!pointers[i] || attributes_of(pointers[i], &out[i]) == CUDA_SUCCESS) continue;
    // A thread without a context: the same question in one that lives.
    CUcontext context = any_context();
    if (!context) continue;
    Scope scope(context);
    if (attributes_of(pointers[i], &out[i]) != CUDA_SUCCESS) out[i] = Pointer{};
  }
}

Status uuid(int ordinal, DeviceUuid* out) {
  CUdevice handle;
  CUuuid found;
  TUTTI_CU_TRY(cuDeviceGet(&handle, ordinal));
  TUTTI_CU_TRY(cuDeviceGetUuid(&found, handle));
  static_assert(sizeof found == sizeof out->bytes);
  std::memcpy(out->bytes, &found, sizeof found);
  return Code::ok;
}

cuda::Group* end_of(gpu::Group* group) {
  return reinterpret_cast<cuda::Group*>(group);
}

Status prepare(const GroupSpec& spec, gpu::Group** group, Blob* blob) {
  Result<std::unique_ptr<cuda::Group>> made = cuda::Group::prepare(spec, blob);
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
                          .name = "cuda",
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
}  // namespace tutti::cuda

extern "C" __attribute__((visibility("default"))) const tutti::gpu::Module* tutti_gpu_module(
    const tutti::gpu::Services* services) {
  if (!tutti::cuda::open_driver(services ? *services : tutti::gpu::Services{})) return nullptr;
  return &tutti::cuda::table;
}
