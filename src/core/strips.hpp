// A gapped buffer in the form in which devices read it: strips, each some runs of equal length at equal
// distances. A vector type of a million blocks is a few hundred of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

// Bytes in one piece, at a distance from the buffer's address.
struct Run {
  ptrdiff_t offset;
  size_t bytes;
};

struct Strip {
  int64_t offset;   // of the first run, from the buffer's address
  int64_t stride;   // from one run to the next
  uint64_t packed;  // where the first run's bytes stand in the packed form; the others follow
  uint32_t bytes;   // of one run
  uint32_t runs;
};

// Work for one team of threads; more is cut.
inline constexpr uint64_t strip_bytes = 16 << 10;

// The runs in the order in which they are packed.
std::vector<Strip> make_strips(std::span<const Run> runs);

}  // namespace tutti
