// What the host hands to a kernel: one plain struct for all kernels.
#pragma once

#include <cstdint>

#include "gpu/lane.hpp"

namespace tutti::gpu {

struct KernelArgs {
  const char* send;
  char* recv;
  char* lane[max_ranks];  // every member's lane as this rank maps it
  Layout layout;
  uint32_t nranks;
  uint32_t rank;
  uint64_t bytes;  // of the vector (allreduce) or of one rank's block
  uint32_t code;   // reduction_code(op, dtype)
  uint32_t root;
  uint32_t in_place;  // recv overlaps what is pushed: wait for the local flag before writing
  // LL engine
  uint32_t epoch;  // of this call; never 0
  // push engine
  uint64_t base;        // chunks of all earlier calls of the group
  uint64_t slice;       // bytes of one rank's part (two-shot), a multiple of 16
  uint64_t ring_bytes;  // of one source's ring
  uint32_t chunk;       // bytes, a multiple of 16
  uint32_t slots;       // of one ring
  uint32_t push_ctas;
  uint32_t reduce_ctas;
  uint32_t drain_ctas;
  // completion
  uint32_t sequence;           // what the completion line shows then
  uint32_t soft;               // the result lies in this GPU's own memory: see finish()
  uint32_t* done;              // completion line, pinned host memory
  uint32_t* failed;            // set to 1 before completion when a wait was aborted
  const uint32_t* abort_word;  // host's abort word
};

}  // namespace tutti::gpu
