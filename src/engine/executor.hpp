// Executor: runs one schedule as an Operation.
//
// It is made once per cached schedule, where in-degrees and successors are counted and all memory
// is reserved, and serves one call after another: bind() gives the call's addresses, start() and
// poll() run it. A step costs no allocation, lock, system call or log.
//
// Failure. The first error is kept, and the call runs out: every send still to come becomes an
// error message, every receive is still posted, so that peers end too and no message is left to
// match in a later call. abort() does not wait for that: it withdraws the receives (law 9: the rank
// they wait for may never come). Later calls then need another sequence number, which is part of
// the tags.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/operation.hpp"
#include "pml/transport.hpp"
#include "sched/schedule.hpp"

namespace tutti {

// How a reduce step combines: to[i] = op(lower[i], higher[i]) for `count` elements. `lower` is the
// part of the lower ranks. `to` equals one of the two or overlaps neither.
struct Reduction {
  using Function = void (*)(const Reduction& self, void* to, const void* lower, const void* higher,
                            size_t count);
  Function function = nullptr;
  Op op = Op::sum;
  Dtype dtype = Dtype::byte;
  void* context = nullptr;  // a user operation's
};

// For schedules with wide places: their memory, and what is done there. A group step between wide
// ranges is one of fp32 elements.
struct Widening {
  void* memory = nullptr;  // schedule's wide_count floats
  Reduction reduction;     // of fp32
  void (*widen)(void* to, const void* from, size_t count) = nullptr;
  void (*narrow)(void* to, const void* from, size_t count) = nullptr;
};

// What runs group steps. The room that joins schedules with kernels, shared memory and the fabric
// implements it.
class GroupRunner {
 public:
  virtual ~GroupRunner() = default;
  // The operation for a group step (number `number` of its schedule), ready to be started on these
  // ranges; it stays the runner's and lives until the call has finished. Must not allocate after
  // the first call of a schedule. It fails on all members or on none; an operation whose start()
  // fails has told its members.
  virtual Result<Operation*> prepare(uint32_t number, const Step& step, const Group& group,
                                     const void* from, void* to) = 0;
};

// What copies between host memory and a device, for schedules staged for such ends.
class CopyRunner {
 public:
  virtual ~CopyRunner() = default;
  // Nonblocking: *handle names it for poll() until that says finished. Must not allocate.
  virtual Status start(void* to, const void* from, size_t bytes, uint64_t* handle) = 0;
  virtual Poll poll(uint64_t handle) = 0;
};

// One call's part: addresses (input equals output in place), and its number on the communicator.
struct ExecutorCall {
  const void* input = nullptr;
  void* output = nullptr;
  void* scratch = nullptr;
  Reduction reduction;
  uint64_t sequence = 0;
  Widening wide = {};
  // Where one of these lies on a device: copies from and to it go this way.
  CopyRunner* copies = nullptr;
  bool input_on_device = false;
  bool output_on_device = false;
};

class Executor final : public Operation {
 public:
  struct Places {
    const Schedule* schedule = nullptr;  // outlives the executor, as do the two below
    Transport* transport = nullptr;      // may be missing when the schedule has no messages
    GroupRunner* groups = nullptr;       // may be missing when it has no group steps
    size_t extent_bytes = 1;             // of one element
    // Text for waiting_for(): "rank 3 (host b, pid 17)". May be empty.
    std::function<std::string(int)> rank_text = {};
  };

  // Bits of a tag that number the step's message, and the bits above them, taken by the call's
  // sequence number so that a late message of a call that ended in error matches nothing.
  static constexpr int step_tag_bits = std::bit_width(tag_limit - 1);
  static constexpr int sequence_bits = Transport::tag_bits - step_tag_bits;

  // Refuses (internal) a schedule that does not hang together: it would read or write out of
  // bounds.
  static Result<std::unique_ptr<Executor>> open(Places places);

  // Between calls only.
  void bind(const ExecutorCall& call) { call_ = call; }
  const ExecutorCall& call() const { return call_; }

  Status start() override;
  Poll poll() override;
  void abort(Status why) override;
  const char* phase() const override;
  std::string waiting_for() const override;
  // In place of start(): tells the peers of the call that was bound, whose addresses may be missing,
  // that this rank cannot make it. Group steps are not entered: their members are told otherwise.
  void refuse(Status why);

 private:
  explicit Executor(Places places);
  Status check() const;
  const char* fault_of(uint32_t step) const;
  void count_edges();

  void copy(const Step& step);
  bool on_device(const Ref& ref) const;
  void start_copy(uint32_t step);
  size_t bytes_of(const Ref& ref) const {
    return ref.count * (ref.space == Space::wide ? sizeof(float) : places_.extent_bytes);
  }
  const void* source(const Ref& ref) const;
  void* target(const Ref& ref) const;
  uint64_t wire_tag(const Step& step) const;

  void make_ready(uint32_t step);
  void run_ready();
  void run_step(uint32_t step);
  void post(uint32_t step);
  void start_group(uint32_t step);
  void finish(uint32_t step);
  void fail(Status why);
  bool test_flight();
  Poll end() const;

  // A step that goes on outside.
  struct Flight {
    enum class Kind : uint8_t { transfer, copy, group };
    uint32_t step = 0;
    Kind kind = Kind::transfer;
    uint64_t handle = 0;  // of a transfer or a copy
    Operation* group = nullptr;
  };
  Poll look_at(const Flight& flight);

  Places places_;
  ExecutorCall call_;

  // Counted once.
  std::vector<uint32_t> in_degrees_;
  std::vector<uint32_t>
      next_begin_;  // successors of step i: next_[next_begin_[i]..next_begin_[i+1])
  std::vector<uint32_t> next_;
  std::vector<uint32_t> roots_;  // steps without predecessors, receives first

  // The call's.
  std::vector<uint32_t> missing_;  // predecessors not finished yet
  std::vector<uint32_t> ready_;    // every step enters once: a queue that never wraps
  size_t ready_head_ = 0;
  std::vector<Flight> flight_;
  size_t finished_ = 0;
  Status status_;
  bool aborted_ = false;
};

}  // namespace tutti
