// Memory for tests: poisoned when made, with canaries on both sides that must survive.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

namespace tutti {

class Guarded {
 public:
  explicit Guarded(size_t bytes) : bytes_(bytes), memory_(bytes + 2 * guard_bytes, canary) {
    std::memset(data(), poison, bytes);
  }
  unsigned char* data() { return memory_.data() + guard_bytes; }
  const unsigned char* data() const { return memory_.data() + guard_bytes; }
  size_t bytes() const { return bytes_; }

  bool intact() const {
    for (size_t i = 0; i < guard_bytes; ++i)
      if (memory_[i] != canary || memory_[guard_bytes + bytes_ + i] != canary) return false;
    return true;
  }

 private:
  static constexpr size_t guard_bytes = 64;
  static constexpr unsigned char canary = 0xc7;
  static constexpr unsigned char poison = 0xdb;
  size_t bytes_;
  std::vector<unsigned char> memory_;
};

}  // namespace tutti
