// The CUDA driver as found in the process: a table of its entry points, and what every use of them
// needs. No CUDA library is linked, and cuInit is never called (law 4).
#pragma once

#include <cuda.h>

#include <string>

#include "base/status.hpp"
#include "gpu/device.hpp"

namespace tutti::cuda {

struct Driver {
#define TUTTI_CU(name) decltype(&::name) name = nullptr;
#define TUTTI_CU_OPTIONAL(name) TUTTI_CU(name)
#include "cuda/driver.def"
#undef TUTTI_CU
#undef TUTTI_CU_OPTIONAL
};

// Finds the driver that the program has loaded; false (logged) when it lacks an entry point.
bool open_driver(const gpu::Services& services);
const Driver& cu();

void say(int level, const std::string& text);
inline constexpr int level_warn = 2;
inline constexpr int level_info = 3;

// Logs a failure, once, with what was tried; the code for it.
Status check(CUresult result, const char* what);

#define TUTTI_CU_TRY(call)                                                     \
  do {                                                                         \
    CUresult tutti_cu_result = ::tutti::cuda::cu().call;                       \
    if (tutti_cu_result != CUDA_SUCCESS) return check(tutti_cu_result, #call); \
  } while (0)

// While it lives, `context` is current and capture of this thread's streams does not forbid what
// tutti does on its own streams. Both are put back.
class Scope {
 public:
  explicit Scope(CUcontext context);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  bool pushed_ = false;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace tutti::cuda
