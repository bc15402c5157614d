#include "cuda/copy.hpp"

#include "cuda/device.hpp"
#include "cuda/knobs.hpp"
#include "gpu/kernel/pack.hpp"

namespace tutti::cuda {

namespace {

// A copy under way: an event behind it on its stream. Events are used again.
struct Flight {
  CUevent event = nullptr;
  CUcontext context = nullptr;
  bool busy = false;
};

struct Flights {
  std::mutex mutex;
  std::vector<Flight> all;
  uint32_t turn = 0;
};
Flights& flights() {
  static Flights& one = *new Flights;
  return one;
}

CUdeviceptr pointer(const void* p) {
  return reinterpret_cast<CUdeviceptr>(p);
}

Result<Device*> locked_device(int ordinal) {
  auto lock = lock_devices();
  return device(ordinal);
}

// A free entry of that context, made if there is none. With the lock of the flights held.
Result<size_t> take_flight(Flights& f, CUcontext context) {
  for (size_t i = 0; i < f.all.size(); ++i)
    if (!f.all[i].busy && f.all[i].context == context) return i;
  CUevent event = nullptr;
  TUTTI_CU_TRY(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  f.all.push_back({event, context, false});
  return f.all.size() - 1;
}

// Starts something on one of the two streams, so that copies in both directions overlap; *handle names
// what then waits for its end.
template <class Work>
Status begin(const Device& d, uint64_t* handle, const Work& work) {
  Flights& f = flights();
  std::lock_guard lock(f.mutex);
  Result<size_t> index = take_flight(f, d.context);
  if (!index.ok()) return index.status();
  CUstream stream = d.copy_streams[f.turn++ % 2];
  TUTTI_TRY(work(stream));
  TUTTI_CU_TRY(cuEventRecord(f.all[*index].event, stream));
  f.all[*index].busy = true;
  *handle = *index;
  return Code::ok;
}

// As kernels see it. Memory that the driver does not know would fault in a kernel, and a fault ends the
// context: so it is asked, which costs 0.1 us.
bool device_sees(const void* memory, CUdeviceptr* seen) {
  unsigned type = 0;
  void* address = nullptr;
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
  void* values[] = {&type, &address};
  if (cu().cuPointerGetAttributes(2, names, values, pointer(memory)) != CUDA_SUCCESS) return false;
  *seen = pointer(address);
  return type != 0 && address != nullptr;
}

}  // namespace

Status copy(int ordinal, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return Code::ok;
  Result<Device*> d = locked_device(ordinal);
  if (!d.ok()) return d.status();
  Scope scope((*d)->context);
  CUstream stream = (*d)->copy_streams[0];
  TUTTI_CU_TRY(cuMemcpyAsync(pointer(to), pointer(from), bytes, stream));
  TUTTI_CU_TRY(cuStreamSynchronize(stream));
  return Code::ok;
}

Status copy_start(int ordinal, void* to, const void* from, size_t bytes, uint64_t* handle) {
  Result<Device*> d = locked_device(ordinal);
  if (!d.ok()) return d.status();
  Scope scope((*d)->context);
  return begin(**d, handle, [&](CUstream stream) -> Status {
    if (bytes) TUTTI_CU_TRY(cuMemcpyAsync(pointer(to), pointer(from), bytes, stream));
    return Code::ok;
  });
}

Status pack_start(int ordinal, const gpu::PackCall& call, uint64_t* handle) {
  auto lock = lock_devices();
  Result<Device*> d = device(ordinal);
  if (!d.ok()) return d.status();
  Scope scope((*d)->context);
  TUTTI_TRY((*d)->load_pack());
  lock.unlock();
  if (refuse(refusals().launches, "launch of packing")) return Code::no_resource;
  CUdeviceptr packed = 0;
  CUdeviceptr strips = 0;
  if (!device_sees(call.packed, &packed) || !device_sees(call.strips, &strips))
    return Code::unsupported;
  gpu::PackArgs args{};
  args.program = static_cast<char*>(call.program);
  args.packed = reinterpret_cast<char*>(packed);
  args.strips = reinterpret_cast<const Strip*>(strips);
  args.count = call.count;
  args.unpack = call.unpack;
  // A warp a strip. Two CTAs an SM are more than NVLink or PCIe can feed.
  constexpr unsigned threads = 256;
  constexpr uint64_t strips_a_cta = threads / 32;
  const uint64_t wanted = (call.count + strips_a_cta - 1) / strips_a_cta;
  const uint64_t most = uint64_t{2} * (*d)->sms;
  const auto ctas = static_cast<unsigned>(wanted < most ? wanted : most);
  return begin(**d, handle, [&](CUstream stream) -> Status {
    void* parameters[] = {&args};
    if (ctas != 0)
      TUTTI_CU_TRY(cuLaunchKernel((*d)->pack_kernel, ctas, 1, 1, threads, 1, 1, 0, stream,
                                  parameters, nullptr));
    return Code::ok;
  });
}

Status take_memory(int ordinal, size_t bytes, void** memory) {
  auto lock = lock_devices();
  Result<Device*> d = device(ordinal);
  if (!d.ok()) return d.status();
  if ((*d)->scratch == 0) return Code::no_resource;
  std::optional<uint64_t> at = (*d)->scratch_pool.take(bytes);
  if (!at) return Code::no_resource;
  *memory = reinterpret_cast<void*>((*d)->scratch + *at);
  return Code::ok;
}

void give_memory(int ordinal, void* memory) {
  auto lock = lock_devices();
  Result<Device*> d = device(ordinal);
  if (d.ok()) (*d)->scratch_pool.give_back(pointer(memory) - (*d)->scratch);
}

Poll copy_poll(uint64_t handle) {
  Flights& f = flights();
  std::lock_guard lock(f.mutex);
  if (handle >= f.all.size() || !f.all[handle].busy) return Poll::failed(Code::bad_argument);
  Scope scope(f.all[handle].context);
  CUresult state = cu().cuEventQuery(f.all[handle].event);
  if (state == CUDA_ERROR_NOT_READY) return Poll::busy();
  f.all[handle].busy = false;
  if (state == CUDA_SUCCESS) return Poll::done();
  return Poll::failed(check(state, "copy"));
}

Status host_register(void* memory, size_t bytes) {
  CUcontext context = any_context();
  if (!context) return Code::no_device;
  Scope scope(context);
  TUTTI_CU_TRY(cuMemHostRegister(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE));
  CUdeviceptr seen = 0;
  if (device_sees(memory, &seen) && seen == pointer(memory)) return Code::ok;
  cu().cuMemHostUnregister(memory);
  return Code::unsupported;
}

void host_unregister(void* memory) {
  CUcontext context = any_context();
  if (!context) return;
  Scope scope(context);
  cu().cuMemHostUnregister(memory);
}

}  // namespace tutti::cuda
