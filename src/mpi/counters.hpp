// Counts of calls and of the paths they took: law 8, tutti.h and TUTTI_STATS.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::mpi {

enum class Call : uint8_t {
#define TUTTI_CALL(name) name,
#include "mpi/calls.def"
#undef TUTTI_CALL
};
inline constexpr const char* call_names[] = {
#define TUTTI_CALL(name) #name,
#include "mpi/calls.def"
#undef TUTTI_CALL
};
inline constexpr size_t call_count = sizeof(call_names) / sizeof(call_names[0]);

// What became of a call. The rest went to the MPI below: that needs no counter of its own.
enum class Taken : uint8_t { native, bounce };
inline constexpr size_t taken_count = 2;

struct Counters {
  std::array<std::atomic<uint64_t>, call_count> calls{};
  std::array<std::array<std::atomic<uint64_t>, taken_count>, call_count> taken{};
};
extern Counters counters;
// Whether several threads may count at a time. With one, an addition needs no locked instruction,
// which would be half the cost of a call that passes through.
extern bool counting_threads;

inline void add_one(std::atomic<uint64_t>& counter) {
  if (counting_threads)
    counter.fetch_add(1, std::memory_order_relaxed);
  else
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}
inline void count_call(Call call) {
  add_one(counters.calls[static_cast<size_t>(call)]);
}
inline void count_taken(Call call, Taken taken) {
  add_one(counters.taken[static_cast<size_t>(call)][static_cast<size_t>(taken)]);
}

// "allreduce 12 calls: 10 native, 0 bounce, 2 below; ..." of what was called at all.
std::string describe_counters();

}  // namespace tutti::mpi
