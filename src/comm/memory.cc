#include "comm/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/log.hpp"
#include "comm/process.hpp"
#include "gpu/module.hpp"

namespace tutti::memory {

bool possible = false;

namespace {

// Blocks not in use; the sum is bounded so that one huge call does not hold its memory for good.
constexpr size_t kept_bytes_limit = size_t{128} << 20;
constexpr size_t page_bytes = 4096;

struct Block {
  void* memory;
  size_t bytes;
  bool registered;
  bool sparse;
};
struct Blocks {
  std::mutex mutex;
  std::vector<Block> free;
  std::vector<Block> taken;
  size_t free_bytes = 0;
};
Blocks& blocks() {
  static Blocks* const instance = new Blocks;  // outlives callbacks late in the exit
  return *instance;
}

// Doubling sizes, so that calls of many sizes share blocks.
size_t block_bytes(size_t bytes) {
  size_t size = page_bytes;
  while (size < bytes) size *= 2;
  return size;
}

void unmap(const Block& block) {
  if (block.registered) gpu::module().host_unregister(block.memory);
  munmap(block.memory, block.bytes);
}

void* take_sparse(size_t size) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    TUTTI_ERROR("comm",
                "no {} bytes of address space for the copy of a device buffer; addresses that one "
                "call takes from several allocations must not lie that far apart",
                size);
    return nullptr;
  }
  std::lock_guard<std::mutex> lock(blocks().mutex);
  blocks().taken.push_back({memory, size, false, true});
  return memory;
}

}  // namespace

void open(const Config& config) {
  possible = Process::get(config).device_possible();
}

bool look_live() {
  return gpu::live();
}

void look(const void* const* pointers, int n, Place* places) {
  gpu::Pointer found[8];
  gpu::module().query(pointers, std::min(n, 8), found);
  for (int i = 0; i < std::min(n, 8); ++i)
    places[i] = {!gpu::host_readable(found[i].kind), found[i].device, found[i].buffer_id};
}

Status copy(int32_t device, void* to, const void* from, size_t bytes) {
  return gpu::module().copy(device, to, from, bytes);
}

Status copy_start(int32_t device, void* to, const void* from, size_t bytes, uint64_t* handle) {
  return gpu::module().copy_start(device, to, from, bytes, handle);
}

Poll copy_poll(uint64_t handle) {
  return gpu::module().copy_poll(handle);
}

Status pack_start(int32_t device, const Pack& pack, uint64_t* handle) {
  return gpu::module().pack_start(
      device, {pack.program, pack.packed, pack.strips, pack.count, pack.unpack}, handle);
}

void* take_device_block(int32_t device, size_t bytes) {
  void* block = nullptr;
  return gpu::module().take_memory(device, bytes, &block).ok() ? block : nullptr;
}

void give_device_block(int32_t device, void* block) {
  gpu::module().give_memory(device, block);
}

bool is_registered(const void* block) {
  std::lock_guard<std::mutex> lock(blocks().mutex);
  for (const Block& taken : blocks().taken)
    if (taken.memory == block) return taken.registered;
  return false;
}

void* take_block(size_t bytes, bool sparse) {
  if (sparse) return take_sparse((bytes + page_bytes - 1) / page_bytes * page_bytes);
  const size_t size = block_bytes(bytes);
  std::lock_guard<std::mutex> lock(blocks().mutex);
  auto& free = blocks().free;
  auto at = std::find_if(free.begin(), free.end(), [&](const Block& b) { return b.bytes == size; });
  if (at != free.end()) {
    blocks().taken.push_back(*at);
    blocks().free_bytes -= size;
    free.erase(at);
    Block& block = blocks().taken.back();
    // It may come from a time before the driver was there.
    if (!block.registered && live())
      block.registered = gpu::module().host_register(block.memory, block.bytes).ok();
    return block.memory;
  }
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) {
    TUTTI_ERROR("comm", "no {} bytes of host memory for the copy of a device buffer", size);
    return nullptr;
  }
  // Unregistered memory works too; its copies only wait for the driver's own staging.
  const bool registered = gpu::module().host_register(memory, size).ok();
  blocks().taken.push_back({memory, size, registered, false});
  return memory;
}

void give_block(void* memory) {
  std::lock_guard<std::mutex> lock(blocks().mutex);
  auto& taken = blocks().taken;
  auto at =
      std::find_if(taken.begin(), taken.end(), [&](const Block& b) { return b.memory == memory; });
  const Block block = *at;
  taken.erase(at);
  if (block.sparse || blocks().free_bytes + block.bytes > kept_bytes_limit) {
    unmap(block);
    return;
  }
  blocks().free.push_back(block);
  blocks().free_bytes += block.bytes;
}

}  // namespace tutti::memory
