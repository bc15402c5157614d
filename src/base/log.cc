#include "base/log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <string>

namespace tutti::log {

std::atomic<Level> threshold{Level::warn};

namespace {

std::atomic<int> sink_fd{STDERR_FILENO};
std::atomic<int> own_rank{-1};
std::array<std::atomic<uint64_t>, 6> counts{};

constexpr std::array<const char*, 6> level_names = {"OFF",  "ERROR", "WARN",
                                                    "INFO", "DEBUG", "TRACE"};

std::string host_name() {
  std::array<char, 65> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

bool open(Level level, std::string_view path) {
  threshold.store(level, std::memory_order_relaxed);
  if (path.empty()) return true;
  std::string file(path);
  if (size_t at = file.find("%p"); at != std::string::npos)
    file.replace(at, 2, std::to_string(getpid()));
  int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return false;
  sink_fd.store(fd, std::memory_order_relaxed);
  return true;
}

void set_rank(int rank) {
  own_rank.store(rank, std::memory_order_relaxed);
}

void write(Level level, const char* area, std::string_view message) {
  int saved_errno = errno;
  counts[static_cast<size_t>(level)].fetch_add(1, std::memory_order_relaxed);
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  localtime_r(&now.tv_sec, &parts);
  int rank = own_rank.load(std::memory_order_relaxed);
  std::string line = text("tutti {} {:02}:{:02}:{:02}.{:03} {}:{} {}{}: {}\n",
                          level_names[static_cast<size_t>(level)], parts.tm_hour, parts.tm_min,
                          parts.tm_sec, now.tv_nsec / 1000000, host_name(), getpid(),
                          rank < 0 ? std::string() : text("rank {} ", rank), area, message);
  // A short or failed write to a log is not worth failing a collective for.
  [[maybe_unused]] ssize_t written =
      ::write(sink_fd.load(std::memory_order_relaxed), line.data(), line.size());
  errno = saved_errno;
}

uint64_t count(Level level) {
  return counts[static_cast<size_t>(level)].load(std::memory_order_relaxed);
}

}  // namespace tutti::log
