#include "kinds.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace kinds {
namespace {

// What a provider of memory other than host must do. All end the program on failure: a test without
// its memory has no result.
struct Provider {
  void* (*allocate)(Kind kind, size_t bytes) = nullptr;
  void (*release)(Kind kind, void* memory) = nullptr;
  void (*copy)(void* to, const void* from, size_t bytes) = nullptr;
};

Provider provider;
int device = 0;

[[noreturn]] void give_up(const char* what, int code) {
  std::fprintf(stderr, "memory: %s: code %d\n", what, code);
  std::abort();
}

template <class F>
bool find(void* library, const char* symbol, F& function, std::string* why) {
  function = reinterpret_cast<F>(dlsym(library, symbol));
  if (function == nullptr) *why = std::string("no symbol ") + symbol;
  return function != nullptr;
}

// ---- Emulated devices. ----

void* (*emu_alloc)(int, int, size_t);
void (*emu_free)(void*);
void (*emu_copy)(void*, const void*, size_t);

bool open_emu(const std::string& path, std::string* why) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    *why = dlerror();
    return false;
  }
  if (!find(library, "tutti_emu_alloc", emu_alloc, why) ||
      !find(library, "tutti_emu_free", emu_free, why) ||
      !find(library, "tutti_emu_copy", emu_copy, why))
    return false;
  provider.allocate = [](Kind kind, size_t bytes) {
    // As tutti::gpu::Kind: pinned 1, managed 2, device 3. A pool makes no difference here.
    const int code = kind == Kind::pinned ? 1 : kind == Kind::managed ? 2 : 3;
    void* memory = emu_alloc(code, device, bytes);
    if (memory == nullptr) give_up("tutti_emu_alloc", 0);
    return memory;
  };
  provider.release = [](Kind, void* memory) { emu_free(memory); };
  provider.copy = [](void* to, const void* from, size_t bytes) { emu_copy(to, from, bytes); };
  return true;
}

// ---- CUDA, by its runtime; signatures as in cuda_runtime_api.h (cudaError_t is an int). ----

int (*cuda_malloc)(void**, size_t);
int (*cuda_malloc_async)(void**, size_t, void*);
int (*cuda_malloc_managed)(void**, size_t, unsigned);
int (*cuda_malloc_host)(void**, size_t);
int (*cuda_free)(void*);
int (*cuda_free_async)(void*, void*);
int (*cuda_free_host)(void*);
int (*cuda_memcpy)(void*, const void*, size_t, int);
int (*cuda_synchronize)(void*);

void check(const char* what, int code) {
  if (code != 0) give_up(what, code);
}

void* cuda_allocate(Kind kind, size_t bytes) {
  void* memory = nullptr;
  constexpr unsigned attach_global = 1;
  switch (kind) {
    case Kind::pinned:
      check("cudaMallocHost", cuda_malloc_host(&memory, bytes));
      break;
    case Kind::managed:
      check("cudaMallocManaged", cuda_malloc_managed(&memory, bytes, attach_global));
      break;
    case Kind::async:
      check("cudaMallocAsync", cuda_malloc_async(&memory, bytes, nullptr));
      check("cudaStreamSynchronize", cuda_synchronize(nullptr));
      break;
    default:
      check("cudaMalloc", cuda_malloc(&memory, bytes));
  }
  return memory;
}

void cuda_release(Kind kind, void* memory) {
  if (kind == Kind::pinned)
    check("cudaFreeHost", cuda_free_host(memory));
  else if (kind == Kind::async)
    check("cudaFreeAsync", cuda_free_async(memory, nullptr));
  else
    check("cudaFree", cuda_free(memory));
}

void cuda_copy(void* to, const void* from, size_t bytes) {
  constexpr int by_address = 4;  // cudaMemcpyDefault
  check("cudaMemcpy", cuda_memcpy(to, from, bytes, by_address));
  check("cudaStreamSynchronize", cuda_synchronize(nullptr));
}

bool open_cuda(int rank, std::string* why) {
  void* library = nullptr;
  for (const char* file : {"libcudart.so.13", "libcudart.so.12", "libcudart.so"})
    if (library == nullptr) library = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    *why = dlerror();
    return false;
  }
  int (*count_devices)(int*);
  int (*set_device)(int);
  if (!find(library, "cudaGetDeviceCount", count_devices, why) ||
      !find(library, "cudaSetDevice", set_device, why) ||
      !find(library, "cudaMalloc", cuda_malloc, why) ||
      !find(library, "cudaMallocAsync", cuda_malloc_async, why) ||
      !find(library, "cudaMallocManaged", cuda_malloc_managed, why) ||
      !find(library, "cudaMallocHost", cuda_malloc_host, why) ||
      !find(library, "cudaFree", cuda_free, why) ||
      !find(library, "cudaFreeAsync", cuda_free_async, why) ||
      !find(library, "cudaFreeHost", cuda_free_host, why) ||
      !find(library, "cudaMemcpy", cuda_memcpy, why) ||
      !find(library, "cudaStreamSynchronize", cuda_synchronize, why))
    return false;
  int devices = 0;
  if (count_devices(&devices) != 0 || devices == 0) {
    *why = "no CUDA device";
    return false;
  }
  check("cudaSetDevice", set_device(rank % devices));
  provider = {cuda_allocate, cuda_release, cuda_copy};
  return true;
}

}  // namespace

const char* name(Kind kind) {
  constexpr const char* names[] = {"host", "pinned", "managed", "device", "async"};
  return names[static_cast<int>(kind)];
}

Kind find_kind(const std::string& text) {
  for (Kind kind : {Kind::pinned, Kind::managed, Kind::device, Kind::async})
    if (text == name(kind)) return kind;
  return Kind::host;
}

bool open_memory(const std::string& where, int rank, std::string* why) {
  if (where.empty()) return true;
  if (where == "cuda") return open_cuda(rank, why);
  device = rank % 2;
  return open_emu(where, why);
}

Memory::Memory(Kind kind, const std::vector<char>& contents)
    : kind_(kind), bytes_(contents.size()), data_(nullptr) {
  if (kind == Kind::host) {
    data_ = static_cast<char*>(std::malloc(bytes_));
  } else {
    if (provider.allocate == nullptr) give_up("kinds but host need --memory", 0);
    data_ = static_cast<char*>(provider.allocate(kind, bytes_));
  }
  write(contents);
}

Memory::~Memory() {
  if (kind_ == Kind::host)
    std::free(data_);
  else
    provider.release(kind_, data_);
}

std::vector<char> Memory::read() const {
  std::vector<char> contents(bytes_);
  if (kind_ == Kind::host)
    std::memcpy(contents.data(), data_, bytes_);
  else
    provider.copy(contents.data(), data_, bytes_);
  return contents;
}

void Memory::write(const std::vector<char>& contents) {
  if (kind_ == Kind::host)
    std::memcpy(data_, contents.data(), bytes_);
  else
    provider.copy(data_, contents.data(), bytes_);
}

}  // namespace kinds
