#include "cuda/device.hpp"

#include <sys/random.h>

#include <cstring>
#include <memory>

#include "base/text.hpp"

extern "C" const unsigned char tutti_fatbin_kernels[];
extern "C" const unsigned char tutti_fatbin_kernels_move[];
extern "C" const unsigned char tutti_fatbin_linger[];
extern "C" const unsigned char tutti_fatbin_pack[];

namespace tutti::cuda {

namespace {

std::mutex devices_mutex;

std::map<int, std::unique_ptr<Device>>& all_devices() {
  static auto& devices = *new std::map<int, std::unique_ptr<Device>>;
  return devices;
}

// With lazy loading a kernel would be loaded at its first launch, which may wait for the device to be
// idle: a deadlock while another kernel of ours waits for a peer.
Status load(CUfunction function) {
  int registers = 0;
  if (cu().cuFuncLoad)
    TUTTI_CU_TRY(cuFuncLoad(function));
  else
    TUTTI_CU_TRY(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
  return Code::ok;
}

// In the order of gpu::KernelId.
constexpr const char* kernel_symbols[] = {
#define TUTTI_KERNEL(name, threads, body) "tutti_" #name,
#include "gpu/kernels.def"
#include "gpu/kernels_move.def"
#undef TUTTI_KERNEL
};
constexpr uint32_t first_file_kernels = 0
#define TUTTI_KERNEL(name, threads, body) +1
#include "gpu/kernels.def"
#undef TUTTI_KERNEL
    ;

Status open_device(int ordinal, Device& d) {
  d.ordinal = ordinal;
  TUTTI_CU_TRY(cuDeviceGet(&d.handle, ordinal));
  TUTTI_CU_TRY(cuDeviceGetUuid(&d.uuid, d.handle));
  TUTTI_CU_TRY(cuDevicePrimaryCtxRetain(&d.context, d.handle));
  int value = 0;
  TUTTI_CU_TRY(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, d.handle));
  d.sms = static_cast<uint32_t>(value);
  // Old drivers do not know the attribute: then several ranks on one GPU count as without MPS.
  value = 0;
  d.mps = cu().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, d.handle) ==
              CUDA_SUCCESS &&
          value != 0;
  Scope scope(d.context);
  for (CUstream& stream : d.copy_streams)
    TUTTI_CU_TRY(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
  TUTTI_CU_TRY(cuStreamCreateWithPriority(&d.control, CU_STREAM_NON_BLOCKING, 0));
  return Code::ok;
}

}  // namespace

std::unique_lock<std::mutex> lock_devices() {
  return std::unique_lock(devices_mutex);
}

Result<Device*> device(int ordinal) {
  auto& devices = all_devices();
  auto found = devices.find(ordinal);
  if (found != devices.end()) return found->second.get();
  auto made = std::make_unique<Device>();
  Status status = open_device(ordinal, *made);
  if (!status.ok()) return status;
  return (devices[ordinal] = std::move(made)).get();
}

Status Device::load_kernels() {
  if (kernels[0]) return Code::ok;
  TUTTI_TRY(load_pack());
  CUmodule modules[2] = {};
  TUTTI_CU_TRY(cuModuleLoadData(&modules[0], tutti_fatbin_kernels));
  TUTTI_CU_TRY(cuModuleLoadData(&modules[1], tutti_fatbin_kernels_move));
  CUfunction found[gpu::kernel_count] = {};
  for (uint32_t k = 0; k < gpu::kernel_count; ++k) {
    const CUmodule module = modules[k < first_file_kernels ? 0 : 1];
    TUTTI_CU_TRY(cuModuleGetFunction(&found[k], module, kernel_symbols[k]));
    TUTTI_TRY(load(found[k]));
  }
  std::memcpy(kernels, found, sizeof found);
  return Code::ok;
}

Status Device::load_pack() {
  if (pack_kernel != nullptr) return Code::ok;
  CUmodule module = nullptr;
  CUfunction found = nullptr;
  TUTTI_CU_TRY(cuModuleLoadData(&module, tutti_fatbin_pack));
  TUTTI_CU_TRY(cuModuleGetFunction(&found, module, "tutti_pack"));
  TUTTI_TRY(load(found));
  pack_kernel = found;
  return Code::ok;
}

Status Device::make_arena(uint64_t lane_bytes) {
  if (arena) return Code::ok;
  gpu::LanePool pool(lane_bytes ? lane_bytes : gpu::default_lane_bytes, gpu::small_lane_bytes,
                     gpu::small_lane_count);
  CUdeviceptr memory = 0;
  TUTTI_CU_TRY(cuMemAlloc(&memory, pool.total_bytes()));
  Status exported =
      check(cu().cuIpcGetMemHandle(&arena_handle, memory), "cuIpcGetMemHandle of lanes");
  if (!exported.ok()) {
    cu().cuMemFree(memory);
    return exported;
  }
  // Without it buffers are packed into host memory.
  if (cu().cuMemAlloc(&scratch, gpu::scratch_bytes) != CUDA_SUCCESS) scratch = 0;
  arena = memory;
  arena_nonce = random_number();
  lanes = std::move(pool);
  return Code::ok;
}

CUDA_KERNEL_NODE_PARAMS Device::linger_params(const LingerKernel& kernel, void** parameters,
                                              bool two, uint32_t ctas) {
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = kernel.function;
  params.gridDimX = ctas;
  params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = (two ? gpu::linger_workers_two : gpu::linger_workers_more) + gpu::linger_team;
  params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = parameters;
  return params;
}

Status Device::open_linger() {
  if (linger.is_open()) return Code::ok;
  CUmodule module = nullptr;
  TUTTI_CU_TRY(cuModuleLoadData(&module, tutti_fatbin_linger));
  for (const bool two : {true, false}) {
    LingerKernel& kernel = linger_kernels_[two ? 0 : 1];
    TUTTI_CU_TRY(
        cuModuleGetFunction(&kernel.function, module, two ? "tutti_linger_2" : "tutti_linger_8"));
    TUTTI_TRY(load(kernel.function));
    gpu::LingerArgs args{};
    void* parameters[] = {&args};
    const CUDA_KERNEL_NODE_PARAMS params = linger_params(kernel, parameters, two, 1);
    CUgraph graph = nullptr;
    TUTTI_CU_TRY(cuGraphCreate(&graph, 0));
    TUTTI_CU_TRY(cuGraphAddKernelNode(&kernel.node, graph, nullptr, 0, &params));
    TUTTI_CU_TRY(cuGraphInstantiate(&kernel.exec, graph, 0));
  }
  // Of the highest priority (out of range is the nearest): it gets a channel of its own, so that work
  // of the program does not queue behind a kernel that waits.
  constexpr int highest_priority = -100;
  TUTTI_CU_TRY(
      cuStreamCreateWithPriority(&linger_stream, CU_STREAM_NON_BLOCKING, highest_priority));
  void* memory = nullptr;
  TUTTI_CU_TRY(cuMemHostAlloc(&memory, sizeof(gpu::LingerLine),
                              CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  std::memset(memory, 0, sizeof(gpu::LingerLine));
  constexpr size_t relay_bytes = gpu::command_words * sizeof(uint64_t);
  CUdeviceptr relay = 0;
  TUTTI_CU_TRY(cuMemAlloc(&relay, relay_bytes));
  TUTTI_CU_TRY(cuMemsetD8Async(relay, 0, relay_bytes, linger_stream));
  TUTTI_CU_TRY(cuStreamSynchronize(linger_stream));
  linger.open(static_cast<gpu::LingerLine*>(memory), reinterpret_cast<uint64_t*>(relay));
  return Code::ok;
}

Status Device::launch_linger() {
  gpu::LingerArgs args = linger.launch_args();
  const bool two = linger.launched_ranks() == 2;
  const LingerKernel& kernel = linger_kernels_[two ? 0 : 1];
  void* parameters[] = {&args};
  const CUDA_KERNEL_NODE_PARAMS params =
      linger_params(kernel, parameters, two, linger.launched_ctas());
  TUTTI_CU_TRY(cuGraphExecKernelNodeSetParams(kernel.exec, kernel.node, &params));
  TUTTI_CU_TRY(cuGraphLaunch(kernel.exec, linger_stream));
  return Code::ok;
}

long linger_count(const char* name) {
  auto lock = lock_devices();
  uint64_t sum = 0;
  for (const auto& [ordinal, device] : all_devices()) {
    const gpu::Linger::Counts& counts = device->linger.counts();
    if (std::strcmp(name, "rung") == 0)
      sum += counts.rung.load();
    else if (std::strcmp(name, "launched") == 0)
      sum += counts.launched.load();
    else if (std::strcmp(name, "missed") == 0)
      sum += counts.missed.load();
    else
      return -1;
  }
  return static_cast<long>(sum);
}

Result<HostLine*> Device::take_line() {
  if (free_lines_.empty()) {
    constexpr size_t lines = 16;
    void* memory = nullptr;
    TUTTI_CU_TRY(cuMemHostAlloc(&memory, lines * sizeof(HostLine),
                                CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    for (size_t i = 0; i < lines; ++i) free_lines_.push_back(static_cast<HostLine*>(memory) + i);
  }
  HostLine* line = free_lines_.back();
  free_lines_.pop_back();
  std::memset(static_cast<void*>(line), 0, sizeof *line);
  return line;
}

uint64_t random_number() {
  uint64_t number = 0;
  while (number == 0)
    if (getrandom(&number, sizeof number, 0) != sizeof number) number = 0;
  return number;
}

uint64_t process_nonce() {
  static const uint64_t nonce = random_number();
  return nonce;
}

CUcontext any_context() {
  static std::mutex mutex;
  static CUcontext context = nullptr;
  std::lock_guard lock(mutex);
  int count = 0;
  if (context || cu().cuDeviceGetCount(&count) != CUDA_SUCCESS) return context;
  for (int i = 0; i < count && !context; ++i) {
    CUdevice handle;
    unsigned flags = 0;
    int active = 0;
    if (cu().cuDeviceGet(&handle, i) == CUDA_SUCCESS &&
        cu().cuDevicePrimaryCtxGetState(handle, &flags, &active) == CUDA_SUCCESS && active &&
        cu().cuDevicePrimaryCtxRetain(&context, handle) != CUDA_SUCCESS)
      context = nullptr;
  }
  return context;
}

}  // namespace tutti::cuda
