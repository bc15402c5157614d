// Counts what this thread allocates, by replacing operator new in the test program; not under
// sanitizers, which replace it themselves.
#pragma once

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TUTTI_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TUTTI_TEST_SANITIZED 1
#endif
#endif

namespace tutti {

#ifdef TUTTI_TEST_SANITIZED
inline constexpr bool counts_allocations = false;
#else
inline constexpr bool counts_allocations = true;
#endif

uint64_t allocations_of_this_thread();

// Most bytes from operator new that this thread has held at once since the last restart, beyond what it
// held then. Memory that one thread takes and another frees is counted wrong.
void restart_peak_of_this_thread();
uint64_t peak_bytes_of_this_thread();

}  // namespace tutti
