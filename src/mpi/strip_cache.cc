#include "mpi/strip_cache.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <mutex>

namespace tutti::mpi {

namespace {

// In all; the entries longest out of use go first. A vector type of 64 MiB takes 160 KiB.
constexpr uint64_t kept_strips_limit = (uint64_t{4} << 20) / sizeof(Strip);

struct Entry {
  MPI_Datatype type;
  int64_t count;
  std::shared_ptr<const DeviceStrips> strips;
};
struct Entries {
  std::mutex mutex;
  std::list<Entry> all;  // the one used last is the first
  uint64_t strips = 0;
  std::atomic<bool> any{false};
};
Entries& entries() {
  static Entries* const instance = new Entries;  // outlives callbacks late in the exit
  return *instance;
}

std::shared_ptr<const DeviceStrips> flatten(const Blocks& blocks) {
  Runs runs;
  Layout layout;
  MPI_Datatype known = MPI_DATATYPE_NULL;
  for (int i = 0; i < blocks.n; ++i) {
    const MPI_Datatype type = blocks.type_of(i);
    const int64_t count = blocks.count_of(i);
    if (count <= 0) continue;
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    below.Type_get_extent(type, &lower, &extent);
    if (type != known) layout = packing_order_of(type);
    known = type;
    if (!layout.exact) return nullptr;
    const int64_t displ = blocks.displs ? blocks.displs[i] : 0;
    repeat(layout.runs, count, extent, blocks.types != nullptr ? displ : displ * extent, runs);
    if (runs.size() > run_limit) return nullptr;
  }
  return DeviceStrips::make(make_strips(runs));
}

void shrink(Entries& e) {
  while (e.strips > kept_strips_limit) {
    e.strips -= e.all.back().strips->count();
    e.all.pop_back();
  }
}

}  // namespace

std::shared_ptr<const DeviceStrips> DeviceStrips::make(const std::vector<Strip>& strips) {
  std::shared_ptr<DeviceStrips> made(new DeviceStrips);
  const size_t bytes = strips.size() * sizeof(Strip);
  made->data_ = static_cast<Strip*>(memory::take_block(std::max<size_t>(bytes, 1)));
  if (made->data_ == nullptr || !memory::is_registered(made->data_)) return nullptr;
  if (bytes != 0) std::memcpy(made->data_, strips.data(), bytes);
  made->count_ = strips.size();
  return made;
}

DeviceStrips::~DeviceStrips() {
  if (data_ != nullptr) memory::give_block(data_);
}

std::shared_ptr<const DeviceStrips> strips_for(const Blocks& blocks) {
  const bool one = blocks.n == 1 && !blocks.counts;
  Entries& e = entries();
  if (one) {
    std::lock_guard lock(e.mutex);
    for (auto at = e.all.begin(); at != e.all.end(); ++at) {
      if (at->type != blocks.type || at->count != blocks.count) continue;
      e.all.splice(e.all.begin(), e.all, at);
      return at->strips;
    }
  }
  auto made = flatten(blocks);
  if (!one || made == nullptr || made->count() > kept_strips_limit) return made;
  std::lock_guard lock(e.mutex);
  e.all.push_front({blocks.type, blocks.count, made});
  e.strips += made->count();
  e.any.store(true, std::memory_order_relaxed);
  shrink(e);
  return made;
}

void forget_strips(MPI_Datatype type) {
  Entries& e = entries();
  if (!e.any.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(e.mutex);
  e.all.remove_if([&](const Entry& entry) {
    if (entry.type == type) e.strips -= entry.strips->count();
    return entry.type == type;
  });
}

}  // namespace tutti::mpi
