// From MPI_Init to MPI_Finalize: when tutti is there at all.
//
// Inert before MPI_Init, after MPI_Finalize, and in programs that never call MPI: nothing runs when
// the library is loaded. tutti ends in the deletion of the first attribute of MPI_COMM_SELF, which
// MPI calls last, so a program's own such callbacks still find it at work.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/config.hpp"
#include "engine/engine.hpp"
#include "mpi/below.hpp"

namespace tutti::mpi {

enum class Phase : uint8_t {
  before,  // of MPI_Init
  active,
  over,  // MPI_Finalize has begun, or tutti is told not to take part
};
extern std::atomic<Phase> phase;

inline bool active() {
  return phase.load(std::memory_order_relaxed) == Phase::active;
}
// A bit for each Call that may be tutti's own in this job, equal on all ranks; what has none is for the
// MPI below without another look. None before MPI_Init.
extern uint32_t calls_offered;
// Whether some rank of the job may see a device, equal on all ranks. False before MPI_Init.
extern bool devices_possible;

// For entries: takes up work where MPI was initialised before tutti came into the process.
bool late_active();

// What lives as long as tutti is active.
struct Runtime {
  explicit Runtime(const Config& settings) : config(settings), engine(EngineHooks()) {}
  Config config;
  Engine engine;
  // A duplicate of MPI_COMM_SELF for requests and progress: tutti's own.
  MPI_Comm self = MPI_COMM_NULL;
  // Node of each rank of MPI_COMM_WORLD; empty when not known.
  std::vector<int32_t> world_nodes;
  bool network = false;  // Job::network
  // Some rank's pending calls progress by tutti's thread, which cannot drive a set-up. Then, on all
  // ranks, only a blocking call sets a communicator up; nonblocking ones before it go below.
  bool set_up_by_blocking_calls = false;
};
// Only while active.
Runtime& runtime();

}  // namespace tutti::mpi
