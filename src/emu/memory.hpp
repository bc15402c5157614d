// Emulated memory: which addresses belong to it, and where the module may touch their pages.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/device.hpp"

namespace tutti::emu {

gpu::Pointer find(const void* address);
// The address by which the module reads and writes what the program calls `address`; host memory is
// itself.
void* alias(const void* address);

}  // namespace tutti::emu
