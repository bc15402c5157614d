// Ranks as forked processes of one node, for tests and benchmarks of a GPU module: control words in
// shared memory (barrier, gate, blobs), and memory of every kind from the emulation or the driver.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/device.hpp"

namespace tutti::testing {

constexpr int most_groups = 16;

// One per job, in memory that all ranks share.
struct Control {
  struct alignas(64) Line {
    std::atomic<uint64_t> value{0};
  };
  Line barrier[gpu::max_group];
  Line gate[most_groups][gpu::max_group];
  Line word[gpu::max_group];
  std::atomic<uint32_t> failed{0};
  gpu::Blob blobs[gpu::max_group];
  double times[gpu::max_group][8];
};

// Memory of the program under test: by the emulation's hooks, or by the CUDA driver.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual void* allocate(gpu::Kind kind, int device, size_t bytes) = 0;
  virtual void release(gpu::Kind kind, void* memory) = 0;
  virtual int devices() const = 0;
  // Whether memory of that kind can be had (the emulation has all).
  virtual bool offers(gpu::Kind kind) const = 0;
};
// nullptr and a reason when there is no device or driver.
std::unique_ptr<Memory> emulated_memory(const std::string& module_path, std::string* why);
std::unique_ptr<Memory> cuda_memory(std::string* why);

// How a rank of a job sees it.
class Job {
 public:
  Job(Control* control, int rank, int nranks, const gpu::Module* module, Memory* memory);
  int rank() const { return rank_; }
  int nranks() const { return nranks_; }
  int device() const { return device_; }
  void use_device(int device) { device_ = device; }
  const gpu::Module& module() const { return *module_; }
  Memory& memory() const { return *memory_; }
  Control& control() const { return *control_; }

  void barrier();
  // Says that this rank entered call number `call` of the group; true when all have.
  void enter(int group, uint64_t call);
  bool gate_closed(int group, uint64_t call) const;
  void gate(int group, uint64_t call);
  // prepare, exchange of blobs, connect. All ranks get the worst outcome; then no group is left.
  Status make_group(gpu::GroupSpec spec, gpu::Group** group);
  // Worst of all ranks' values.
  double worst(double value);

  // Ends the job: message, all ranks leave.
  [[noreturn]] void fail(const std::string& message);

 private:
  Control* control_;
  int rank_;
  int nranks_;
  int device_;
  const gpu::Module* module_;
  Memory* memory_;
  uint64_t phase_ = 0;
};

// Memory with canaries on both sides, `offset` bytes off an aligned address.
class Buffer {
 public:
  Buffer(Job& job, gpu::Kind kind, size_t bytes, size_t offset);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const { return memory_ + front_; }
  void put(const void* host);  // fills it, canaries too
  // Reads it back; false when a canary was written over.
  bool get(void* host);

 private:
  Job& job_;
  gpu::Kind kind_;
  size_t bytes_;
  size_t front_;
  char* memory_;
  std::vector<uint8_t> shadow_;
};

double now_seconds();

// Forks the ranks, runs `body` in each, and returns 0 when all of them returned 0. A rank that dies
// or fails ends the others; after `limit_seconds` all are ended.
int run_ranks(int nranks, unsigned limit_seconds,
              const std::function<int(Control*, int rank)>& body);

// The same with ranks as threads of this process: what a thread sanitizer can follow. A failure ends the
// process.
int run_threads(int nranks, const std::function<int(Control*, int rank)>& body);

}  // namespace tutti::testing
