#include "cuda/driver.hpp"

#include <dlfcn.h>

#include "base/text.hpp"

namespace tutti::cuda {

namespace {

Driver driver;
gpu::Services services;

#define TUTTI_TEXT_OF(name) #name
#define TUTTI_SYMBOL(name) TUTTI_TEXT_OF(name)

}  // namespace

const Driver& cu() {
  return driver;
}

void say(int level, const std::string& text) {
  if (services.log) services.log(level, "cuda", text.c_str());
}

bool open_driver(const gpu::Services& given) {
  services = given;
  void* handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (!handle) handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    say(level_warn, text("no CUDA driver: {}", dlerror()));
    return false;
  }
  const char* missing = nullptr;
  const auto find = [&](const char* symbol, bool needed) {
    void* found = dlsym(handle, symbol);
    if (!found && needed) missing = symbol;
    return found;
  };
#define TUTTI_CU(name) \
  driver.name = reinterpret_cast<decltype(driver.name)>(find(TUTTI_SYMBOL(name), true));
#define TUTTI_CU_OPTIONAL(name) \
  driver.name = reinterpret_cast<decltype(driver.name)>(find(TUTTI_SYMBOL(name), false));
#include "cuda/driver.def"
#undef TUTTI_CU
#undef TUTTI_CU_OPTIONAL
  if (!missing) return true;
  say(level_warn, text("the CUDA driver lacks {}: tutti needs one for CUDA 12 or later", missing));
  return false;
}

Status check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return Code::ok;
  const char* name = nullptr;
  driver.cuGetErrorName(result, &name);
  say(level_warn, text("{}: {}", name ? name : "unknown CUDA error", what));
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return Code::no_memory;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
      return Code::no_device;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
      return Code::unsupported;
    default:
      return Code::device_fault;
  }
}

Scope::Scope(CUcontext context) {
  CUcontext current = nullptr;
  if (driver.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != context)
    pushed_ = driver.cuCtxPushCurrent(context) == CUDA_SUCCESS;
  driver.cuThreadExchangeStreamCaptureMode(&mode_);
}

Scope::~Scope() {
  driver.cuThreadExchangeStreamCaptureMode(&mode_);
  CUcontext popped;
  if (pushed_) driver.cuCtxPopCurrent(&popped);
}

}  // namespace tutti::cuda
