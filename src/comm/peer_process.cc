#include "comm/peer_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/text.hpp"

namespace tutti {

namespace {

struct Stat {
  char state = '?';
  uint64_t start_ticks = 0;
};

// Fields 3 and 22 of /proc/<pid>/stat (proc(5)); counted from the last ')', because a program's
// name may hold anything.
bool read_stat(int32_t pid, Stat& stat) {
  const std::string path = text("/proc/{}/stat", pid);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  std::array<char, 1024> line{};
  const ssize_t n = read(fd, line.data(), line.size() - 1);
  close(fd);
  if (n <= 0) return false;
  const char* at = strrchr(line.data(), ')');
  if (at == nullptr || at[1] == '\0') return false;
  at += 2;
  stat.state = *at;
  for (int field = 3; field < 22 && at != nullptr; ++field) {
    at = strchr(at, ' ');
    if (at != nullptr) ++at;
  }
  if (at != nullptr) stat.start_ticks = strtoull(at, nullptr, 10);
  return true;
}

}  // namespace

PeerProcess::PeerProcess(int32_t pid) : pid_(pid) {
  if (Stat stat; read_stat(pid, stat)) start_ticks_ = stat.start_ticks;
}

bool PeerProcess::alive() const {
  const int saved_errno = errno;
  bool alive = true;
  Stat stat;
  if (read_stat(pid_, stat))
    alive = stat.state != 'Z' && stat.state != 'X' &&
            (start_ticks_ == 0 || stat.start_ticks == start_ticks_);
  else
    alive = !(kill(pid_, 0) != 0 && errno == ESRCH);
  errno = saved_errno;
  return alive;
}

}  // namespace tutti
