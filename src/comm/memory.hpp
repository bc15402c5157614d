// Where the program's buffers lie, and copies between host and device: what the mpi room needs of a
// GPU module, which it may not see.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.hpp"
#include "core/poll.hpp"
#include "core/strips.hpp"

namespace tutti {
struct Config;
}

namespace tutti::memory {

// Finds out whether this process may ever see a device. Before everything else here; the settings
// stay.
void open(const Config& config);

extern bool possible;
bool look_live();
// Whether a buffer may lie on a device: no more than a load where the machine has none.
inline bool live() {
  return possible && look_live();
}

// A buffer that the CPU may not touch, and where it lies.
struct Place {
  bool on_device = false;
  int32_t device = -1;
  uint64_t buffer_id = 0;  // of the allocation on the device
  bool operator==(const Place&) const = default;
};
// n <= 8 pointers by one look.
void look(const void* const* pointers, int n, Place* places);

Status copy(int32_t device, void* to, const void* from, size_t bytes);
// Nonblocking: *handle names it for copy_poll until that says finished.
Status copy_start(int32_t device, void* to, const void* from, size_t bytes, uint64_t* handle);
Poll copy_poll(uint64_t handle);

// A gapped buffer on a device packed, or unpacked, by a kernel; nonblocking as copy_start. `packed` and
// `strips` are of take_block or take_device_block. unsupported where the kernel does not reach them.
struct Pack {
  void* program = nullptr;
  void* packed = nullptr;
  const Strip* strips = nullptr;
  uint64_t count = 0;
  bool unpack = false;
};
Status pack_start(int32_t device, const Pack& pack, uint64_t* handle);
// A little memory of the device for packed buffers; nullptr when there is none left.
void* take_device_block(int32_t device, size_t bytes);
void give_device_block(int32_t device, void* block);

// Host memory for copies, known to the driver where that can be; contents are not defined. Blocks
// are kept for the next call up to 128 MiB in all. Sparse: of a block that may be huge little will
// be touched; it takes memory only there. nullptr when there is none.
void* take_block(size_t bytes, bool sparse = false);
void give_block(void* block);
// Whether the driver knows it.
bool is_registered(const void* block);

}  // namespace tutti::memory
