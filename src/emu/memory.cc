#include "emu/memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>

#include "emu/faults.hpp"
#include "gpu/emu.hpp"

namespace tutti::emu {

namespace {

struct Block {
  size_t bytes = 0;
  size_t mapped_bytes = 0;
  char* alias = nullptr;
  gpu::Pointer pointer;
};

struct Registry {
  std::mutex mutex;
  std::map<uintptr_t, Block> blocks;  // by the program's address
  uint64_t next_id = 1;
};

Registry& registry() {
  static Registry& all = *new Registry;  // outlives the threads that still copy at exit
  return all;
}

// The block that holds the address; with the registry's lock held.
const std::pair<const uintptr_t, Block>* holder(Registry& all, const void* address) {
  auto at = reinterpret_cast<uintptr_t>(address);
  auto after = all.blocks.upper_bound(at);
  if (after == all.blocks.begin()) return nullptr;
  const auto& entry = *std::prev(after);
  return at < entry.first + entry.second.bytes ? &entry : nullptr;
}

}  // namespace

gpu::Pointer find(const void* address) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  const auto* entry = holder(all, address);
  return entry ? entry->second.pointer : gpu::Pointer{};
}

void* alias(const void* address) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  const auto* entry = holder(all, address);
  if (!entry) return const_cast<void*>(address);
  return entry->second.alias + (reinterpret_cast<uintptr_t>(address) - entry->first);
}

}  // namespace tutti::emu

void* tutti_emu_alloc(int kind, int device, size_t bytes) {
  using namespace tutti;
  using namespace tutti::emu;
  if (refuse(faults().refuse_alloc)) return nullptr;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  Block block;
  block.bytes = bytes ? bytes : 1;
  block.mapped_bytes = (block.bytes + page - 1) / page * page;
  int fd = memfd_create("tutti-emu", MFD_CLOEXEC);
  if (fd < 0) return nullptr;
  void* program = MAP_FAILED;
  void* alias = MAP_FAILED;
  const bool hidden = static_cast<gpu::Kind>(kind) == gpu::Kind::device;
  if (ftruncate(fd, static_cast<off_t>(block.mapped_bytes)) == 0) {
    program = mmap(nullptr, block.mapped_bytes, hidden ? PROT_NONE : PROT_READ | PROT_WRITE,
                   MAP_SHARED, fd, 0);
    alias = mmap(nullptr, block.mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  close(fd);
  if (program == MAP_FAILED || alias == MAP_FAILED) {
    if (program != MAP_FAILED) munmap(program, block.mapped_bytes);
    if (alias != MAP_FAILED) munmap(alias, block.mapped_bytes);
    return nullptr;
  }
  block.alias = static_cast<char*>(alias);
  block.pointer.kind = static_cast<gpu::Kind>(kind);
  block.pointer.device = block.pointer.kind == gpu::Kind::pinned ? -1 : device;
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  block.pointer.buffer_id = all.next_id++;
  all.blocks.emplace(reinterpret_cast<uintptr_t>(program), block);
  return program;
}

void tutti_emu_free(void* memory) {
  using namespace tutti::emu;
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  auto entry = all.blocks.find(reinterpret_cast<uintptr_t>(memory));
  if (entry == all.blocks.end()) return;
  munmap(memory, entry->second.mapped_bytes);
  munmap(entry->second.alias, entry->second.mapped_bytes);
  all.blocks.erase(entry);
}

void tutti_emu_copy(void* to, const void* from, size_t bytes) {
  if (bytes) std::memcpy(tutti::emu::alias(to), tutti::emu::alias(from), bytes);
}
