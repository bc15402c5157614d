// Whether a process of this node still lives, for the watchdog.
#pragma once

#include <cstdint>

namespace tutti {

class PeerProcess {
 public:
  PeerProcess() = default;
  // Remembers when it was started, so that a later process of the same number is not taken for it.
  explicit PeerProcess(int32_t pid);

  // False once it is gone, or dead and not yet reaped by its parent. Where /proc cannot tell, true:
  // a wrong "dead" would end a good call. One open and read: not for hot paths.
  bool alive() const;
  int32_t pid() const { return pid_; }

 private:
  int32_t pid_ = 0;
  uint64_t start_ticks_ = 0;  // 0: not known
};

}  // namespace tutti
