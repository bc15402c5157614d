// What tests call in libtutti_emu.so: allocation of emulated device memory and copies to and from it.
//
// An emulated device address is PROT_NONE for the program: any load or store of the CPU faults, as on
// a real machine. The module works on a private alias of the same pages.
#pragma once

#include <cstddef>

extern "C" {
// kind as tutti::gpu::Kind (managed and pinned memory is readable by the program). nullptr when out
// of memory.
void* tutti_emu_alloc(int kind, int device, size_t bytes);
void tutti_emu_free(void* memory);
// Copies between host memory and emulated memory, either way.
void tutti_emu_copy(void* to, const void* from, size_t bytes);
}
