// What tests call in libtutti_emu.so: allocation of emulated device memory and copies to and from
// it.
//
// An emulated device address is PROT_NONE for the program: any load or store of the CPU faults, as
// on a real machine. The module works on a private alias of the same pages.
#pragma once

#include <cstddef>

#define TUTTI_EMU_API __attribute__((visibility("default")))

extern "C" {
// kind as tutti::gpu::Kind (managed and pinned memory is readable by the program). nullptr when out
// of memory.
TUTTI_EMU_API void* tutti_emu_alloc(int kind, int device, size_t bytes);
TUTTI_EMU_API void tutti_emu_free(void* memory);
// Copies between host memory and emulated memory, either way.
TUTTI_EMU_API void tutti_emu_copy(void* to, const void* from, size_t bytes);
// Sets a knob of src/emu/faults.hpp by its name; -1 when there is none of that name.
TUTTI_EMU_API int tutti_emu_set(const char* knob, long value);
// A count of this process, by its name: calls that a lingering kernel took from the bell ("rung"),
// its launches ("launched"), rings that came too late for it ("missed"), and how many there are now
// ("lingering"), packings by kernels ("packed") and calls of groups that were started ("started"). -1
// for other names.
TUTTI_EMU_API long tutti_emu_get(const char* count);
}
