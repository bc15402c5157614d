// The strips of gapped buffers, in memory that a device reads: made once for a datatype and count, kept as
// long as the datatype and as there is room.
#pragma once

#include <cstdint>
#include <memory>

#include "core/strips.hpp"
#include "mpi/bounce.hpp"

namespace tutti::mpi {

class DeviceStrips {
 public:
  // nullptr where there is no memory that a device reads.
  static std::shared_ptr<const DeviceStrips> make(const std::vector<Strip>& strips);
  ~DeviceStrips();
  DeviceStrips(const DeviceStrips&) = delete;
  DeviceStrips& operator=(const DeviceStrips&) = delete;

  const Strip* data() const { return data_; }
  uint64_t count() const { return count_; }

 private:
  DeviceStrips() = default;
  Strip* data_ = nullptr;
  uint64_t count_ = 0;
};

// Of the blocks, from the buffer's address. nullptr where their layout is not known byte for byte, or there
// is no memory: then the MPI below packs.
std::shared_ptr<const DeviceStrips> strips_for(const Blocks& blocks);
// The program frees the datatype: its handle may come back as another's.
void forget_strips(MPI_Datatype type);

}  // namespace tutti::mpi
