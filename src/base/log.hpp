// Logging: five macros, one sink, one line a message.
//
// A line is "tutti <level> <time> <host>:<pid> rank <rank> <area>: <text>". Volume: error and warn
// for what the user must know, info per job, debug per communicator, trace per call (compiled out
// unless TUTTI_WITH_TRACE is defined). A test that warns unexpectedly fails.
//
// Threads: any. Async-signal: no. The sink is a file descriptor; a line is one write(2), so lines of
// several ranks on one terminal do not mix. errno is kept.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/text.hpp"

namespace tutti::log {

enum class Level : int { off, error, warn, info, debug, trace };

// Read on every macro; written once by open().
extern std::atomic<Level> threshold;

// Opens the sink. `path` empty means standard error; "%p" in it becomes the process id.
// Returns false (and keeps standard error) when the file cannot be opened.
bool open(Level level, std::string_view path);
// Prefix of every later line; -1 leaves the rank out.
void set_rank(int rank);
void write(Level level, const char* area, std::string_view message);
// How many lines of that level were written by this process: tests assert on it.
uint64_t count(Level level);

template <class... Args>
void print(Level level, const char* area, fmt::format_string<Args...> format, Args&&... args) {
  write(level, area, vtext(format, fmt::make_format_args(args...)));
}

}  // namespace tutti::log

#define TUTTI_LOG(level, area, ...)                                         \
  do {                                                                      \
    if (::tutti::log::threshold.load(std::memory_order_relaxed) >= (level)) \
      ::tutti::log::print((level), (area), __VA_ARGS__);                    \
  } while (0)
#define TUTTI_ERROR(area, ...) TUTTI_LOG(::tutti::log::Level::error, area, __VA_ARGS__)
#define TUTTI_WARN(area, ...) TUTTI_LOG(::tutti::log::Level::warn, area, __VA_ARGS__)
#define TUTTI_INFO(area, ...) TUTTI_LOG(::tutti::log::Level::info, area, __VA_ARGS__)
#define TUTTI_DEBUG(area, ...) TUTTI_LOG(::tutti::log::Level::debug, area, __VA_ARGS__)
#ifdef TUTTI_WITH_TRACE
#define TUTTI_TRACE(area, ...) TUTTI_LOG(::tutti::log::Level::trace, area, __VA_ARGS__)
#else
#define TUTTI_TRACE(area, ...) \
  do {                         \
  } while (0)
#endif
