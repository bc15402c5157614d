#include "allocations.hpp"

#ifdef TUTTI_TEST_SANITIZED

namespace tutti {

uint64_t allocations_of_this_thread() {
  return 0;
}
void restart_peak_of_this_thread() {}
uint64_t peak_bytes_of_this_thread() {
  return 0;
}

}  // namespace tutti

#else

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

thread_local uint64_t allocations = 0;
thread_local int64_t held_bytes = 0, peak_bytes = 0, start_bytes = 0;

void* allocate(size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  held_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  peak_bytes = std::max(peak_bytes, held_bytes);
  return memory;
}

void release(void* memory) {
  held_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

namespace tutti {

uint64_t allocations_of_this_thread() {
  return allocations;
}
void restart_peak_of_this_thread() {
  start_bytes = peak_bytes = held_bytes;
}
uint64_t peak_bytes_of_this_thread() {
  return static_cast<uint64_t>(peak_bytes - start_bytes);
}

}  // namespace tutti

void* operator new(size_t bytes) {
  return allocate(bytes);
}
void* operator new[](size_t bytes) {
  return allocate(bytes);
}
void operator delete(void* memory) noexcept {
  release(memory);
}
void operator delete[](void* memory) noexcept {
  release(memory);
}
void operator delete(void* memory, size_t) noexcept {
  release(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  release(memory);
}

#endif
