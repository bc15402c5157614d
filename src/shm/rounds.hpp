// Rounds: a collective moved through the lanes of a node, piece by piece (see NodeGroup). What the
// engine of a call sees of it; NodeAllreduce and NodeExchange are the kinds.
#pragma once

#include "core/poll.hpp"
#include "core/problem.hpp"
#include "shm/node_group.hpp"

namespace tutti::shm {

// How a rank's own buffers are reached. Lanes are always host memory.
struct Access {
  bool direct = true;  // the CPU reads and writes the buffers
  // Otherwise: copies between a buffer and a lane; either pointer may be the device's.
  Status (*copy)(void* context, void* to, const void* from, size_t bytes) = nullptr;
  void* context = nullptr;
};

class Rounds {
 public:
  explicit Rounds(NodeGroup& group) : group_(group) {}
  virtual ~Rounds() = default;
  Rounds(const Rounds&) = delete;
  Rounds& operator=(const Rounds&) = delete;

  // Prepares a call: how it is cut into pieces. The buffers of `local` stay until poll() has
  // finished; spans of the problem are copied.
  virtual void prepare(const Agreed& agreed, const Local& local, const Access& access) = 0;
  // Lays the first piece out ahead of the gate, which spares a meeting. Only for direct buffers,
  // and only where no summary can lead past the rounds: a round once published must be finished.
  bool lay_out_first();
  // After the gate. all_laid_out: every rank has laid out its first piece.
  virtual Poll poll(bool all_laid_out) = 0;
  virtual const char* phase() const = 0;
  // First rank it waits for, -1 when none.
  int missing() const { return cursor_ < group_.nranks() ? cursor_ : -1; }

 protected:
  // Lays out piece `index` and publishes its round.
  virtual Status lay_out(uint64_t index) = 0;

  Poll waiting();
  bool all_in(uint64_t round);
  bool all_reduced(uint64_t round);
  Status copy(void* to, const void* from, size_t bytes);
  // Gives elements of a lane to the program: bytes of an element that hold no data keep what they
  // had.
  Status give(std::byte* to, const std::byte* from, uint64_t count);
  void take_buffers(const Agreed& agreed, const Local& local, const Access& access);

  NodeGroup& group_;
  Access access_;
  const std::byte* send_ = nullptr;
  std::byte* recv_ = nullptr;
  bool in_place_ = false;
  Dtype dtype_ = Dtype::byte;
  size_t extent_ = 1;
  bool large_ = false;
  uint64_t pieces_ = 0;
  uint64_t laid_out_ = 0;  // pieces laid out so far
  uint64_t index_ = 0;     // piece being moved
  uint64_t first_round_ = 0;
  int cursor_ = 0;
  uint32_t looks_ = 0;
};

}  // namespace tutti::shm
