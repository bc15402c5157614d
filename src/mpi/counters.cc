#include "mpi/counters.hpp"

#include <config.h>

#include <cstring>

#include "base/text.hpp"
#include "mpi/entry.hpp"
#include "tutti.h"

namespace tutti::mpi {

Counters counters;
bool counting_threads = false;

namespace {

uint64_t value(const std::atomic<uint64_t>& counter) {
  return counter.load(std::memory_order_relaxed);
}

// Sum of get(i) over the collectives of that name; all of them for nullptr.
template <class Get>
uint64_t sum(const char* name, Get get) {
  uint64_t total = 0;
  for (size_t i = 0; i < call_count; ++i)
    if (name == nullptr || std::strcmp(name, call_names[i]) == 0) total += get(i);
  return total;
}

uint64_t count_of(size_t call, tutti_path path) {
  const auto& row = counters.taken[call];
  const uint64_t native = value(row[static_cast<size_t>(Taken::native)]);
  const uint64_t bounce = value(row[static_cast<size_t>(Taken::bounce)]);
  switch (path) {
    case TUTTI_PATH_NATIVE:
      return native;
    case TUTTI_PATH_BOUNCE:
      return bounce;
    case TUTTI_PATH_BELOW:
      return value(counters.calls[call]) - native - bounce;
  }
  return 0;
}

}  // namespace

std::string describe_counters() {
  std::string out;
  for (size_t i = 0; i < call_count; ++i) {
    if (value(counters.calls[i]) == 0) continue;
    out += text("{}{} {} calls: {} native, {} bounce, {} below", out.empty() ? "" : "; ",
                call_names[i], value(counters.calls[i]), count_of(i, TUTTI_PATH_NATIVE),
                count_of(i, TUTTI_PATH_BOUNCE), count_of(i, TUTTI_PATH_BELOW));
  }
  return out.empty() ? "no collective was called" : out;
}

}  // namespace tutti::mpi

extern "C" {

TUTTI_ENTRY int tutti_api_version(void) {
  return TUTTI_API_VERSION;
}

TUTTI_ENTRY const char* tutti_version(void) {
  return PACKAGE_VERSION;
}

TUTTI_ENTRY unsigned long long tutti_count_calls(const char* collective) {
  return tutti::mpi::sum(collective,
                         [](size_t i) { return tutti::mpi::value(tutti::mpi::counters.calls[i]); });
}

TUTTI_ENTRY unsigned long long tutti_count_path(const char* collective, enum tutti_path path) {
  return tutti::mpi::sum(collective, [path](size_t i) { return tutti::mpi::count_of(i, path); });
}

}  // extern "C"
