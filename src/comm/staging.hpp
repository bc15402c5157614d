// Staging: host copies of a call's buffers that lie on a device. A rank makes them by itself at its
// own ends: which messages are sent does not depend on it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "comm/memory.hpp"
#include "core/poll.hpp"
#include "core/problem.hpp"

namespace tutti {

class Staging {
 public:
  Staging() = default;
  ~Staging() { drop(); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Replaces the device buffers of `local` by host copies and begins to fill them. Afterwards
  // needed() tells whether there are any.
  Status begin(const Agreed& agreed, int rank, int nranks, Local& local);
  bool needed() const { return input_.host != nullptr || output_.host != nullptr; }
  // Whether the copies hold what the call reads.
  Poll poll();
  // Takes the result to the device; poll() tells when it is there.
  Status begin_out();
  void drop();
  // The copies may still be touched by a peer: they are never used again.
  void abandon();

 private:
  struct Copy {
    void* host = nullptr;
    void* device = nullptr;
    int32_t number = -1;  // of the device
    size_t bytes = 0;
    uint64_t handle = 0;
    bool pending = false;
  };
  Status make(Copy& copy, const memory::Place& place, const void* buffer, size_t bytes);
  static Status begin_copy(Copy& copy, bool in);

  Copy input_;
  Copy output_;
  bool gives_ = false;  // the output is the call's to write
};

}  // namespace tutti
