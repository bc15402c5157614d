// Copies between any two kinds of memory, on streams of tutti's own.
#pragma once

#include "cuda/driver.hpp"
#include "gpu/device.hpp"

namespace tutti::cuda {

Status copy(int device, void* to, const void* from, size_t bytes);
Status copy_start(int device, void* to, const void* from, size_t bytes, uint64_t* handle);
Poll copy_poll(uint64_t handle);
Status pack_start(int device, const gpu::PackCall& call, uint64_t* handle);
Status take_memory(int device, size_t bytes, void** memory);
void give_memory(int device, void* memory);
Status host_register(void* memory, size_t bytes);
void host_unregister(void* memory);

}  // namespace tutti::cuda
