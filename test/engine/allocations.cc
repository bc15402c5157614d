#include "allocations.hpp"

#ifdef TUTTI_TEST_SANITIZED

namespace tutti {

uint64_t allocations_of_this_thread() {
  return 0;
}

}  // namespace tutti

#else

#include <cstdlib>
#include <new>

namespace {

thread_local uint64_t allocations = 0;

void* allocate(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

namespace tutti {

uint64_t allocations_of_this_thread() {
  return allocations;
}

}  // namespace tutti

void* operator new(size_t bytes) {
  return allocate(bytes);
}
void* operator new[](size_t bytes) {
  return allocate(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}

#endif
