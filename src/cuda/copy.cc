#include "cuda/copy.hpp"

#include "cuda/device.hpp"

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
  Flights& f = flights();
  std::lock_guard lock(f.mutex);
  Result<size_t> index = take_flight(f, (*d)->context);
  if (!index.ok()) return index.status();
  // Two streams, so that copies in both directions overlap.
  CUstream stream = (*d)->copy_streams[f.turn++ % 2];
  if (bytes) TUTTI_CU_TRY(cuMemcpyAsync(pointer(to), pointer(from), bytes, stream));
  TUTTI_CU_TRY(cuEventRecord(f.all[*index].event, stream));
  f.all[*index].busy = true;
  *handle = *index;
  return Code::ok;
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
  return Code::ok;
}

void host_unregister(void* memory) {
  CUcontext context = any_context();
  if (!context) return;
  Scope scope(context);
  cu().cuMemHostUnregister(memory);
}

}  // namespace tutti::cuda
