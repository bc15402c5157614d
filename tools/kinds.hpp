// Memory of any kind for programs that test and measure: host, emulated device memory
// (libtutti_emu.so) or CUDA, both reached by dlopen so that the program itself needs neither.
#pragma once

#include <string>
#include <vector>

namespace kinds {

enum class Kind { host, pinned, managed, device, async };

const char* name(Kind kind);
Kind find_kind(const std::string& name);

// `where`: empty (host only), "cuda", or the path of libtutti_emu.so. Rank r uses device r modulo
// their number.
bool open_memory(const std::string& where, int rank, std::string* why);

// A piece of memory with contents; read and write copy, so the CPU touches no device address.
class Memory {
 public:
  Memory(Kind kind, const std::vector<char>& contents);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();
  char* data() const { return data_; }
  std::vector<char> read() const;
  void write(const std::vector<char>& contents);

 private:
  Kind kind_;
  size_t bytes_;
  char* data_;
};

}  // namespace kinds
