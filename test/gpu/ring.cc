// The contract test of a GPU module: forked processes as ranks drive its function table with random
// calls. One source, two programs: emu_test (the emulation, in CI) and gpu_test (real devices,
// skips with 77 where there is none).
//
//   --module emu|cuda|PATH  --threads  --ranks N  --iterations N  --max-bytes N  --seed N  --lane BYTES --only
//   CASE
//
// The seed and, on the emulation, the lane (the smallest one: many turns round each ring; or the
// default) are random and printed.
#include <dlfcn.h>
#include <fcntl.h>
#include <getopt.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "base/text.hpp"
#include "gpu/lane_pool.hpp"
#include "gpu/module.hpp"
#include "gpu/scratch_pool.hpp"
#include "harness.hpp"
#include "reference.hpp"

#ifndef TUTTI_RING_MODULE
#define TUTTI_RING_MODULE "cuda"
#endif

namespace tutti::testing {
namespace {

using gpu::Kind;

struct Options {
  std::string module = TUTTI_RING_MODULE;
  int ranks = 0;  // 0: several numbers in turn
  int iterations = 60;
  uint64_t max_bytes = 192 << 10;
  uint64_t seed = 0;
  uint64_t lane_bytes = 0;
  std::string only;
  bool threads = false;  // ranks as threads of one process
  bool emulated = false;
};

using Knob = int (*)(const char*, long);
Knob knob = nullptr;  // of the module: faults to plant
using Counter = long (*)(const char*);
Counter counter = nullptr;  // of the module: what became of calls

struct World {
  Job& job;
  const Options& options;
  Random agreed;  // the same numbers on all ranks
  Random own;
};

constexpr Dtype reduced_types[] = {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16,
                                   Dtype::i32, Dtype::i64, Dtype::u32, Dtype::u64};
constexpr Op reduced_ops[] = {Op::sum, Op::prod, Op::min, Op::max};

bool whole_vector(Coll coll) {
  return coll == Coll::allreduce || coll == Coll::reduce || coll == Coll::bcast;
}

Agreed random_call(World& w, uint64_t max_bytes) {
  Agreed agreed;
  const Coll colls[] = {
      Coll::allreduce, Coll::allreduce, Coll::allgather, Coll::reduce_scatter_block,
      Coll::reduce,    Coll::bcast,     Coll::alltoall,  Coll::gather,
      Coll::scatter};
  agreed.coll = colls[w.agreed.below(std::size(colls))];
  agreed.root = static_cast<int>(w.agreed.below(static_cast<uint64_t>(w.job.nranks())));
  agreed.op = reduced_ops[w.agreed.below(4)];
  agreed.dtype = reduced_types[w.agreed.below(8)];
  if (gpu::moves(agreed.coll) && w.agreed.below(2)) agreed.dtype = Dtype::byte;
  if (!whole_vector(agreed.coll)) max_bytes /= static_cast<uint64_t>(w.job.nranks());
  // Sizes uniform in the logarithm, with awkward ends; some are zero.
  const uint64_t most = std::max<uint64_t>(1, max_bytes / info(agreed.dtype).extent);
  int bits = 0;
  while (most >> bits) ++bits;
  uint64_t ceiling = uint64_t{1} << w.agreed.below(static_cast<uint64_t>(bits) + 1);
  agreed.count = std::min(most, w.agreed.below(ceiling + 1));
  if (w.agreed.below(4) == 0) agreed.count = std::min(most, ceiling);
  return agreed;
}

// A call with its buffers and everything needed to check it.
class Trial {
 public:
  Trial(World& w, const Agreed& agreed, uint64_t seed, bool managed_too = true)
      : w_(w), agreed_(agreed), seed_(seed) {
    const uint64_t n = static_cast<uint64_t>(w.job.nranks());
    const uint64_t block = agreed.bytes();
    const Coll coll = agreed.coll;
    const bool at_root = w.job.rank() == agreed.root;
    const bool blocks_in =
        coll == Coll::reduce_scatter_block || coll == Coll::alltoall || coll == Coll::scatter;
    const bool blocks_out =
        coll == Coll::allgather || coll == Coll::alltoall || coll == Coll::gather;
    send_bytes_ = blocks_in ? n * block : block;
    recv_bytes_ = blocks_out ? n * block : block;
    // Which buffers exist, and who may be in place. A bcast always is: its one buffer is recv.
    const bool only_root = coll == Coll::reduce || coll == Coll::gather;
    has_input_ = at_root || (coll != Coll::bcast && coll != Coll::scatter);
    has_output_ = at_root || !only_root;
    in_place_ = w.own.below(3) == 0 && has_input_ && has_output_;
    if (coll == Coll::bcast) in_place_ = true;
    // At the root of a scatter in place, where the blocks lie, nothing comes out.
    if (coll == Coll::scatter && in_place_) {
      has_output_ = false;
      in_place_ = false;
    }
    if (managed_too) {
      send_kind_ = draw_kind();
      recv_kind_ = draw_kind();
    }
    if (in_place_) recv_bytes_ = std::max(send_bytes_, recv_bytes_);
    if (has_input_ && !in_place_) send_.reset(new Buffer(w.job, send_kind_, send_bytes_, offset()));
    if (has_output_) recv_.reset(new Buffer(w.job, recv_kind_, recv_bytes_, offset()));
    fill();
  }

  gpu::Call call() const {
    gpu::Call call;
    call.agreed = agreed_;
    call.recv = recv_ ? recv_->data() : nullptr;
    call.send = in_place_ ? call.recv : send_ ? send_->data() : nullptr;
    call.recv_kind = recv_kind_;
    call.send_kind = in_place_ ? recv_kind_ : send_kind_;
    return call;
  }

  std::string text() const {
    return tutti::text("{} {} {} count {} root {} in place {} send +{} recv +{} seed {}",
                       name(agreed_.coll), name(agreed_.op), name(agreed_.dtype), agreed_.count,
                       agreed_.root, in_place_,
                       send_ ? reinterpret_cast<uintptr_t>(send_->data()) % 16 : 0,
                       recv_ ? reinterpret_cast<uintptr_t>(recv_->data()) % 16 : 0, seed_);
  }

  // Reads the result back and compares every byte.
  void check() {
    std::vector<uint8_t> result(recv_bytes_);
    if (recv_ && !recv_->get(result.data())) w_.job.fail("canary of recv overwritten: " + text());
    if (send_) {
      std::vector<uint8_t> sent(send_bytes_);
      if (!send_->get(sent.data()) || sent != input_) w_.job.fail("send buffer changed: " + text());
    }
    if (!recv_) return;
    const uint64_t width = info(agreed_.dtype).extent;
    const bool blocks = agreed_.coll == Coll::allgather || agreed_.coll == Coll::alltoall ||
                        agreed_.coll == Coll::gather;
    const uint64_t elements =
        blocks ? agreed_.count * static_cast<uint64_t>(w_.job.nranks()) : agreed_.count;
    for (uint64_t i = 0; i < elements; ++i) {
      const uint64_t want = expected(i);
      const uint64_t have = read_bits(result.data() + i * width, width);
      if (want != have && !both_nan(want, have))
        w_.job.fail(tutti::text("element {}: {:#x} instead of {:#x}: {}", i, have, want, text()));
    }
  }

 private:
  // Host memory that the driver knows is what staged schedules have beside device memory.
  Kind draw_kind() {
    const uint64_t dice = w_.own.below(8);
    return dice == 0 ? Kind::managed : dice == 1 ? Kind::pinned : Kind::device;
  }

  // Mostly what real programs have; else any byte.
  size_t offset() {
    const uint64_t dice = w_.own.below(4);
    if (dice < 2) return 0;
    return dice == 2 ? w_.own.below(8) * info(agreed_.dtype).extent : w_.own.below(32);
  }

  uint64_t element(int rank, uint64_t i) const {
    return input_bits(agreed_.dtype, agreed_.op, seed_, rank, i);
  }

  void fill() {
    const uint64_t width = info(agreed_.dtype).extent;
    input_.resize(send_bytes_);
    for (uint64_t i = 0; i * width < send_bytes_; ++i) {
      const uint64_t bits = element(w_.job.rank(), i);
      std::memcpy(input_.data() + i * width, &bits, width);
    }
    std::vector<uint8_t> poison(recv_bytes_, 0xff);
    if (in_place_) {
      const bool own_block = agreed_.coll == Coll::allgather || agreed_.coll == Coll::gather;
      const uint64_t at = own_block ? static_cast<uint64_t>(w_.job.rank()) * agreed_.bytes() : 0;
      if (has_input_)
        std::copy(input_.begin(), input_.end(), poison.begin() + static_cast<ptrdiff_t>(at));
    }
    if (send_) send_->put(input_.data());
    if (recv_) recv_->put(poison.data());
  }

  uint64_t expected(uint64_t i) const {
    const uint64_t own_block = static_cast<uint64_t>(w_.job.rank()) * agreed_.count;
    switch (agreed_.coll) {
      case Coll::allgather:
      case Coll::gather:
        return element(static_cast<int>(i / agreed_.count), i % agreed_.count) & mask();
      case Coll::alltoall:
        return element(static_cast<int>(i / agreed_.count), own_block + i % agreed_.count) & mask();
      case Coll::bcast:
        return element(agreed_.root, i) & mask();
      case Coll::scatter:
        return element(agreed_.root, own_block + i) & mask();
      default:
        break;
    }
    if (agreed_.coll == Coll::reduce_scatter_block) i += own_block;
    std::vector<uint64_t> bits;
    for (int r = 0; r < w_.job.nranks(); ++r) bits.push_back(element(r, i) & mask());
    return folded_bits(agreed_.dtype, agreed_.op, bits);
  }
  uint64_t mask() const {
    const uint64_t width = info(agreed_.dtype).extent;
    return width == 8 ? ~uint64_t{0} : (uint64_t{1} << 8 * width) - 1;
  }
  bool both_nan(uint64_t a, uint64_t b) const {
    // Only of a NaN that a sum or product makes the payload is open.
    if (gpu::moves(agreed_.coll) || agreed_.op == Op::min || agreed_.op == Op::max) return false;
    const auto nan = [&](uint64_t bits) {
      switch (agreed_.dtype) {
        case Dtype::f32:
          return (bits & 0x7fffffff) > 0x7f800000;
        case Dtype::f64:
          return (bits & ~(uint64_t{1} << 63)) > uint64_t{0x7ff} << 52;
        case Dtype::f16:
          return (bits & 0x7fff) > 0x7c00;
        case Dtype::bf16:
          return (bits & 0x7fff) > 0x7f80;
        default:
          return false;
      }
    };
    return nan(a) && nan(b);
  }

  World& w_;
  Agreed agreed_;
  uint64_t seed_;
  uint64_t send_bytes_ = 0, recv_bytes_ = 0;
  bool in_place_ = false;
  bool has_input_ = true, has_output_ = true;
  Kind send_kind_ = Kind::device, recv_kind_ = Kind::device;
  std::unique_ptr<Buffer> send_, recv_;
  std::vector<uint8_t> input_;
};

using Trials = std::vector<std::unique_ptr<Trial>>;

gpu::Group* must_make(World& w, gpu::GroupSpec spec = {}) {
  gpu::Group* group = nullptr;
  spec.lane_bytes = w.options.lane_bytes;
  Status status = w.job.make_group(spec, &group);
  if (!status.ok()) w.job.fail(std::string("group: ") + status.text());
  return group;
}

Status wait_for(World& w, gpu::Group* group, const std::string& what, double limit_s = 60) {
  const double begin = now_seconds();
  while (true) {
    Poll poll = w.job.module().poll(group);
    if (poll.finished()) return poll.status();
    if (now_seconds() - begin > limit_s) w.job.fail("no end in time: " + what);
    if (w.options.emulated) usleep(10);
  }
}

// The gate must close before start(): a rank that sees a failure elsewhere leaves.
void run_one(World& w, gpu::Group* group, int id, uint64_t call_number, Trial& trial) {
  w.job.gate(id, call_number);
  Status started = w.job.module().start(group, trial.call());
  if (!started.ok()) w.job.fail("start: " + std::string(started.text()) + ": " + trial.text());
  Status status = wait_for(w, group, trial.text());
  if (!status.ok()) w.job.fail("poll: " + std::string(status.text()) + ": " + trial.text());
  trial.check();
}

void random_calls(World& w, gpu::GroupSpec spec, int iterations, uint64_t max_bytes) {
  gpu::Group* group = must_make(w, spec);
  const uint64_t first = w.job.control().gate[0][w.job.rank()].value.load();
  for (int i = 1; i <= iterations; ++i) {
    Trial trial(w, random_call(w, max_bytes), w.agreed.next());
    run_one(w, group, 0, first + static_cast<uint64_t>(i), trial);
  }
  w.job.barrier();
  w.job.module().close(group);
}

void case_random(World& w) {
  random_calls(w, {}, w.options.iterations, w.options.max_bytes);
}

// The smallest CTA budget: every CTA takes many turns.
void case_few_ctas(World& w) {
  gpu::GroupSpec spec;
  spec.ctas = 4;
  random_calls(w, spec, w.options.iterations / 2, w.options.max_bytes);
}

// Every (operation, type) pair on both engines.
void case_all_pairs(World& w) {
  gpu::Group* group = must_make(w);
  uint64_t number = w.job.control().gate[0][w.job.rank()].value.load();
  for (Dtype dtype : reduced_types)
    for (Op op : reduced_ops)
      for (uint64_t bytes : {uint64_t{968}, w.options.max_bytes / 3}) {
        Agreed agreed;
        agreed.op = op;
        agreed.dtype = dtype;
        agreed.count = bytes / info(dtype).extent + w.agreed.below(7);
        Trial trial(w, agreed, w.agreed.next());
        run_one(w, group, 0, ++number, trial);
      }
  w.job.barrier();
  w.job.module().close(group);
}

// Several groups in flight at once, as nonblocking calls on several communicators.
void many_groups(World& w, uint64_t linger_ns, uint64_t max_bytes) {
  constexpr int groups = 4;
  gpu::Group* group[groups];
  uint64_t number[groups];
  for (int g = 0; g < groups; ++g) {
    gpu::GroupSpec spec;
    spec.ctas = 16;  // so that all of them fit on the device together
    spec.linger_ns = linger_ns;
    group[g] = must_make(w, spec);
    number[g] = w.job.control().gate[g][w.job.rank()].value.load();
  }
  for (int batch = 0; batch < w.options.iterations / 12 + 1; ++batch) {
    // Several rounds with memory that is there already: freeing it lets the device come to rest.
    Trials trials;
    for (int i = 0; i < 3 * groups; ++i)
      trials.push_back(std::make_unique<Trial>(w, random_call(w, max_bytes), w.agreed.next()));
    for (int round = 0; round < 3; ++round) {
      const auto trial = [&](int g) -> Trial& {
        return *trials[static_cast<size_t>(round * groups + g)];
      };
      for (int g = 0; g < groups; ++g) w.job.enter(g, ++number[g]);
      // Started when their gate is closed, in one order on all ranks.
      for (int g = 0; g < groups; ++g) {
        w.job.gate(g, number[g]);
        if (!w.job.module().start(group[g], trial(g).call()).ok())
          w.job.fail("start among many groups");
      }
      for (int g = groups - 1; g >= 0; --g) {
        if (!wait_for(w, group[g], trial(g).text()).ok())
          w.job.fail("among many groups: " + trial(g).text());
        trial(g).check();
      }
    }
  }
  w.job.barrier();
  for (int g = 0; g < groups; ++g) w.job.module().close(group[g]);
}

void case_many_groups(World& w) {
  many_groups(w, 0, w.options.max_bytes / 4);
}

// --- lingering kernels ---

// A window of the emulation is as long as what happens between two calls of a test.
uint64_t window_ns(const World& w) {
  return w.options.emulated ? 20'000'000 : 2'000'000;
}

// How often all ranks together did that, from one call of this function to the next.
long since_last(World& w, const char* what) {
  static thread_local std::map<std::string, long> seen;
  const long now = counter(what);
  const long more = now - seen[what];
  seen[what] = now;
  return static_cast<long>(w.job.worst(static_cast<double>(more)));
}

// A call that goes to a lingering kernel if one of enough CTAs is there.
Agreed lingering_call(World& w, uint64_t max_bytes) {
  while (true) {
    const Agreed agreed = random_call(w, max_bytes);
    if (agreed.coll == Coll::allreduce || agreed.coll == Coll::allgather ||
        agreed.coll == Coll::reduce_scatter_block)
      return agreed;
  }
}

// Calls small and not, at once after the last one or about when the window ends, so that the kernel
// leaves while its host rings. Returns the seconds a call took, naps and checks and all.
double linger_calls(World& w, uint64_t linger_ns, int iterations) {
  const double begin = now_seconds();
  gpu::GroupSpec spec;
  spec.linger_ns = linger_ns;
  gpu::Group* group = must_make(w, spec);
  uint64_t number = w.job.control().gate[0][w.job.rank()].value.load();
  for (int i = 0; i < iterations; i += 8) {
    // Memory is freed when several calls are through: that waits for a kernel that lingers.
    Trials trials;
    // Few bytes: work for a team or one CTA, and so for any kernel. More: for some CTAs.
    const uint64_t few = w.options.emulated || i % 16 == 0 ? 900 : 120 << 10;
    for (int k = 0; k < 8; ++k)
      trials.push_back(std::make_unique<Trial>(
          w, w.agreed.below(6) ? lingering_call(w, few) : random_call(w, w.options.max_bytes / 4),
          w.agreed.next()));
    for (const auto& trial : trials) {
      if (w.own.below(8) == 0)
        usleep(static_cast<useconds_t>(window_ns(w) / 1000 * (900 + w.own.below(200)) / 1000));
      if (w.own.below(16) == 0 && !w.options.threads) {
        // A child of the program leaves what the kernel looks at alone.
        const pid_t child = fork();
        if (child == 0) _exit(0);
        waitpid(child, nullptr, 0);
      }
      run_one(w, group, 0, ++number, *trial);
    }
  }
  w.job.barrier();
  w.job.module().close(group);
  return (now_seconds() - begin) / iterations;
}

// Rings since the last call of this: some where kernels may linger, none where processes share a device. On
// emulated devices calls that take a good part of a window each, as on a machine that is busy with other things,
// are not close enough to each other to be rung for.
void expect_rings(World& w, double seconds_a_call) {
  const bool shared = !w.options.threads && w.job.nranks() > w.job.memory().devices();
  const long rings = since_last(w, "rung");
  const bool slow = w.options.emulated &&
                    w.job.worst(seconds_a_call) * 1e9 > 0.2 * static_cast<double>(window_ns(w));
  if (rings == 0 && slow) return;
  if ((rings == 0) != shared)
    w.job.fail(text("{} calls rung, ranks {} devices", rings, shared ? "share" : "do not share"));
}

void case_linger(World& w) {
  since_last(w, "rung");
  expect_rings(w, linger_calls(w, window_ns(w), 3 * w.options.iterations));
}

// Each rank decides for itself: to the peers it makes no difference.
void case_linger_some(World& w) {
  since_last(w, "rung");
  expect_rings(w, linger_calls(w, w.job.rank() % 2 ? window_ns(w) : 0, w.options.iterations));
}

void case_linger_delays(World& w) {
  knob("delay_us", 300);
  since_last(w, "missed");
  linger_calls(w, window_ns(w) / 8, w.options.iterations);
  since_last(w, "missed");
  knob("delay_us", 0);
}

// One kernel serves all groups of a process; a call that finds it busy is launched.
void case_linger_many_groups(World& w) {
  since_last(w, "rung");
  const double begin = now_seconds();
  many_groups(w, window_ns(w), 900);
  many_groups(w, window_ns(w), w.options.max_bytes / 4);
  expect_rings(w, (now_seconds() - begin) / (2 * w.options.iterations));
}

Agreed small_sum() {
  Agreed agreed;
  agreed.dtype = Dtype::f64;
  agreed.count = 40;
  return agreed;
}

// Calls until a kernel lingers in every process. Their memory: to be kept as long as it shall linger.
Trials make_it_linger(World& w, gpu::Group* group, uint64_t& number) {
  const long before = counter("launched");
  w.job.barrier();
  Trials trials;
  for (int i = 0; i < 16; ++i)
    trials.push_back(std::make_unique<Trial>(w, small_sum(), w.agreed.next(), false));
  for (const auto& trial : trials) {
    run_one(w, group, 0, ++number, *trial);
    if (w.job.worst(counter("launched") == before ? 1 : 0) == 0) return trials;
  }
  w.job.fail("no kernel lingers");
}

// A lingering kernel that waits for an absent rank hears of an abort, as a launched one does, and the
// next group lingers again.
void case_linger_abort(World& w) {
  if (!w.options.threads && w.job.nranks() > w.job.memory().devices()) return;
  gpu::GroupSpec spec;
  spec.linger_ns = 100 * window_ns(w);
  gpu::Group* group = must_make(w, spec);
  uint64_t number = w.job.control().gate[0][w.job.rank()].value.load();
  {
    Trial trial(w, small_sum(), w.agreed.next(), false);
    const Trials others = make_it_linger(w, group, number);
    const int absent = static_cast<int>(w.agreed.below(static_cast<uint64_t>(w.job.nranks())));
    w.job.gate(0, ++number);
    if (w.job.rank() != absent) {
      if (!w.job.module().start(group, trial.call()).ok()) w.job.fail("start before an abort");
      const double begin = now_seconds();
      while (now_seconds() - begin < 0.02)
        if (w.job.module().poll(group).finished()) w.job.fail("finished without a rank");
    } else {
      usleep(30000);
    }
    w.job.barrier();
    if (w.job.rank() == absent)
      w.job.module().abort(group);
    else if (wait_for(w, group, "abort", 20).ok())
      w.job.fail("ok in spite of an abort");
    w.job.barrier();
    w.job.module().close(group);
    w.job.barrier();
  }
  group = must_make(w, spec);
  const Trials others = make_it_linger(w, group, number);
  w.job.barrier();
  w.job.module().close(group);
  w.job.barrier();
}

// The end of a group, so that of the last one at MPI_Finalize, ends the kernel.
void case_linger_close(World& w) {
  gpu::GroupSpec spec;
  spec.linger_ns = 60'000'000'000;
  gpu::Group* group = must_make(w, spec);
  uint64_t number = w.job.control().gate[0][w.job.rank()].value.load();
  const Trials trials = make_it_linger(w, group, number);
  w.job.barrier();
  if (counter("lingering") == 0) w.job.fail("no kernel lingers");
  w.job.barrier();
  w.job.module().close(group);
  w.job.barrier();
  const double begin = now_seconds();
  while (counter("lingering") != 0) {
    if (now_seconds() - begin > 20) w.job.fail("a kernel lingers on");
    usleep(100);
  }
  w.job.barrier();
}

// Ranks of two processes on one device: neither keeps the other's kernels waiting.
void case_linger_shared_device(World& w) {
  const int device = w.job.device();
  since_last(w, "launched");
  w.job.use_device(gpu::max_group);  // one that no other case uses
  linger_calls(w, window_ns(w), w.options.iterations / 2);
  if (since_last(w, "launched") != 0) w.job.fail("a kernel lingers on a device of two processes");
  w.job.use_device(device);
}

// One rank does not launch: the others wait, are aborted, and the next group works.
void case_abort(World& w) {
  for (uint64_t count : {uint64_t{64}, w.options.max_bytes / 8}) {
    gpu::Group* group = must_make(w);
    const uint64_t number = w.job.control().gate[0][w.job.rank()].value.load() + 1;
    Agreed agreed;
    agreed.dtype = Dtype::f64;
    agreed.count = count;
    Trial trial(w, agreed, w.agreed.next());
    w.job.gate(0, number);
    const int absent = static_cast<int>(w.agreed.below(static_cast<uint64_t>(w.job.nranks())));
    if (w.job.rank() != absent) {
      if (!w.job.module().start(group, trial.call()).ok()) w.job.fail("start before an abort");
      const double begin = now_seconds();
      while (now_seconds() - begin < 0.02)
        if (w.job.module().poll(group).finished()) w.job.fail("finished without a rank");
    } else {
      usleep(30000);
    }
    w.job.barrier();
    // One rank's abort reaches the kernels of all.
    if (w.job.rank() == absent) {
      w.job.module().abort(group);
    } else if (wait_for(w, group, "abort", 20).ok()) {
      w.job.fail("ok in spite of an abort");
    }
    w.job.barrier();
    w.job.module().close(group);
    w.job.barrier();
  }
  random_calls(w, {}, 4, w.options.max_bytes);
}

void case_kinds_and_copies(World& w) {
  const gpu::Module& module = w.job.module();
  uint8_t local[64] = {};
  for (Kind kind : {Kind::host, Kind::pinned, Kind::managed, Kind::device}) {
    if (kind == Kind::host && w.options.emulated)
      continue;  // the emulation allocates no plain memory
    void* memory = w.job.memory().allocate(kind, w.job.device(), 1 << 16);
    const void* pointers[] = {static_cast<char*>(memory) + 12345, local, nullptr};
    gpu::Pointer found[3];
    module.query(pointers, 3, found);
    if (found[0].kind != kind || found[1].kind != Kind::host || found[2].kind != Kind::host)
      w.job.fail(text("kind {} is seen as {}, a local as {}", static_cast<int>(kind),
                      static_cast<int>(found[0].kind), static_cast<int>(found[1].kind)));
    if (gpu::device_readable(kind) && found[0].device != w.job.device())
      w.job.fail(text("device {} instead of {}", found[0].device, w.job.device()));
    // A thread of the program that has no context sees the same.
    gpu::Pointer elsewhere[3];
    std::thread([&] { module.query(pointers, 3, elsewhere); }).join();
    if (elsewhere[0].kind != kind || elsewhere[1].kind != Kind::host)
      w.job.fail(text("kind {} is seen as {} by a thread without a context", static_cast<int>(kind),
                      static_cast<int>(elsewhere[0].kind)));
    const uint64_t id = found[0].buffer_id;
    w.job.memory().release(kind, memory);
    memory = w.job.memory().allocate(kind, w.job.device(), 1 << 16);
    pointers[0] = memory;
    module.query(pointers, 1, found);
    if (kind == Kind::device && found[0].buffer_id == id) w.job.fail("buffer id used twice");
    for (uint8_t& byte : local) byte = static_cast<uint8_t>(w.own.next());
    uint8_t back[64] = {};
    uint64_t handle = 0;
    if (!module.copy_start(w.job.device(), static_cast<char*>(memory) + 3, local, 64, &handle).ok())
      w.job.fail("copy_start");
    Poll poll = Poll::busy();
    while (!(poll = module.copy_poll(handle)).finished()) usleep(10);
    if (!poll.status().ok() ||
        !module.copy(w.job.device(), back, static_cast<char*>(memory) + 3, 64).ok() ||
        std::memcmp(local, back, 64) != 0)
      w.job.fail("copy to and fro");
    w.job.memory().release(kind, memory);
  }
  gpu::DeviceUuid uuid;
  if (!module.uuid(w.job.device(), &uuid).ok()) w.job.fail("uuid");
}

// Runs of random length in random order, packed by the kernel as by the CPU; what lies between them stays
// when they are unpacked. Into memory of the device and into host memory.
void case_packing(World& w) {
  const gpu::Module& module = w.job.module();
  const int device = w.job.device();
  gpu::Group* group = must_make(w);  // memory for packed buffers comes with it
  const auto wait = [&](const gpu::PackCall& call) {
    uint64_t handle = 0;
    if (!module.pack_start(device, call, &handle).ok()) w.job.fail("pack_start");
    Poll poll = Poll::busy();
    while (!(poll = module.copy_poll(handle)).finished()) usleep(10);
    if (!poll.status().ok()) w.job.fail("packing");
  };
  for (int turn = 0; turn < 24; ++turn) {
    std::vector<Run> runs;
    const uint64_t unit = uint64_t{1} << (w.own.next() % 6);
    const uint64_t most = uint64_t{1} << (w.own.next() % 12);
    const bool regular = w.own.next() % 2 == 0;
    uint64_t end = 0;
    uint64_t bytes = 0;
    for (uint64_t i = w.own.next() % 600; i != 0 && bytes < 4 << 20; --i) {
      const uint64_t length = unit * (regular ? most : 1 + w.own.next() % most);
      end += unit * (regular ? 3 : w.own.next() % 5);
      runs.push_back({static_cast<ptrdiff_t>(end), length});
      end += length;
      bytes += length;
    }
    if (!regular) std::shuffle(runs.begin(), runs.end(), std::mt19937_64(w.own.next()));
    const std::vector<Strip> strips = make_strips(runs);
    void* strip_memory =
        w.job.memory().allocate(Kind::pinned, device, strips.size() * sizeof(Strip) + 1);
    std::memcpy(strip_memory, strips.data(), strips.size() * sizeof(Strip));
    std::vector<uint8_t> program(end + 1);
    std::vector<uint8_t> target(end + 1);
    for (uint8_t& byte : program) byte = static_cast<uint8_t>(w.own.next());
    for (uint8_t& byte : target) byte = static_cast<uint8_t>(w.own.next());
    std::vector<uint8_t> want;
    std::vector<uint8_t> want_target = target;
    for (const Run& run : runs) {
      want.insert(want.end(), program.begin() + run.offset,
                  program.begin() + run.offset + static_cast<ptrdiff_t>(run.bytes));
      std::memcpy(want_target.data() + run.offset, program.data() + run.offset, run.bytes);
    }
    const Kind kind =
        turn % 3 == 2 && w.job.memory().offers(Kind::managed) ? Kind::managed : Kind::device;
    Buffer from(w.job, kind, program.size(), unit == 1 ? w.own.next() % 16 : unit);
    Buffer to(w.job, kind, target.size(), unit == 1 ? w.own.next() % 16 : unit);
    from.put(program.data());
    to.put(target.data());
    void* packed = nullptr;
    const bool on_device = turn % 2 == 0;
    if (!on_device)
      packed = w.job.memory().allocate(Kind::pinned, device, bytes + 1);
    else if (!module.take_memory(device, bytes + 1, &packed).ok())
      w.job.fail("take_memory");
    wait({from.data(), packed, static_cast<Strip*>(strip_memory), strips.size(), false});
    std::vector<uint8_t> got(bytes);
    if (bytes != 0 && !module.copy(device, got.data(), packed, bytes).ok()) w.job.fail("copy");
    if (got != want) w.job.fail(text("{} runs are packed wrong, unit {}", runs.size(), unit));
    wait({to.data(), packed, static_cast<Strip*>(strip_memory), strips.size(), true});
    if (!to.get(target.data())) w.job.fail("unpacking wrote beyond its buffer");
    if (target != want_target)
      w.job.fail(text("{} runs are unpacked wrong, unit {}", runs.size(), unit));
    if (on_device)
      module.give_memory(device, packed);
    else
      w.job.memory().release(Kind::pinned, packed);
    w.job.memory().release(Kind::pinned, strip_memory);
  }
  // What was set aside is bounded, and comes back.
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<void*> taken;
    for (void* memory = nullptr; module.take_memory(device, 1 << 20, &memory).ok();)
      taken.push_back(memory);
    if (taken.size() != gpu::scratch_bytes >> 20)
      w.job.fail(text("{} MiB for packing", taken.size()));
    for (size_t i = 0; i < taken.size(); i += 2) module.give_memory(device, taken[i]);
    for (size_t i = 1; i < taken.size(); i += 2) module.give_memory(device, taken[i]);
  }
  w.job.barrier();
  module.close(group);
  w.job.barrier();
}

// Lanes run out with no_resource, and come back by close().
void case_lanes_run_out(World& w) {
  std::vector<gpu::Group*> groups;
  Status status;
  while (true) {
    gpu::Group* group = nullptr;
    status = w.job.make_group({}, &group);
    if (!status.ok()) break;
    groups.push_back(group);
    if (groups.size() > 64) w.job.fail("lanes never run out");
  }
  if (status != Status(Code::no_resource) || groups.size() < 2)
    w.job.fail(text("{} after {} groups", status.text(), groups.size()));
  w.job.module().close(groups.back());
  groups.pop_back();
  w.job.barrier();
  groups.push_back(must_make(w));
  w.job.barrier();
  for (gpu::Group* group : groups) w.job.module().close(group);
  w.job.barrier();
}

void case_no_peer(World& w) {
  gpu::GroupSpec spec;
  spec.force_no_peer = true;
  gpu::Group* group = nullptr;
  if (w.job.make_group(spec, &group) != Status(Code::unsupported)) w.job.fail("no_peer is ignored");
}

// --- what only the emulation can be made to do ---

// Epochs near their wrap and near the clearing of inboxes.
void case_epochs(World& w) {
  for (uint64_t calls :
       {uint64_t{0xfffffffe} - 5, (uint64_t{1} << 30) - 4, (uint64_t{1} << 31) - 4}) {
    knob("first_call", static_cast<long>(calls));
    random_calls(w, {}, 12, 4 << 10);
  }
  knob("first_call", 0);
}

// Lines of a long call long ago show the epoch of this one: they must have been cleared since.
void case_stale_epoch(World& w) {
  constexpr uint64_t period = 0xfffffffe;
  knob("first_call", (1 << 30) - 3);
  gpu::Group* group = must_make(w);
  uint64_t number = w.job.control().gate[0][w.job.rank()].value.load();
  const auto call = [&](uint64_t count) {
    Agreed agreed;
    agreed.dtype = Dtype::i32;
    agreed.count = count;
    Trial trial(w, agreed, w.agreed.next());
    run_one(w, group, 0, ++number, trial);
  };
  for (uint64_t count : {500, 500, 1, 1}) call(count);
  // So that the next two calls have the epochs of the first two.
  knob("skip_calls", static_cast<long>(period - 4));
  knob("delay_us", 300);
  call(500);
  call(500);
  knob("delay_us", 0);
  knob("first_call", 0);
  w.job.barrier();
  w.job.module().close(group);
}

void case_delays(World& w) {
  knob("delay_us", 300);
  random_calls(w, {}, 24, w.options.max_bytes / 2);
  knob("delay_us", 0);
}

void case_refusals(World& w) {
  const int victim = w.job.nranks() - 1;
  for (const char* what : {"refuse_export", "refuse_import"}) {
    if (w.job.rank() == victim) knob(what, 1);
    gpu::Group* group = nullptr;
    if (w.job.make_group({}, &group).ok()) w.job.fail(text("{} went unnoticed", what));
    knob(what, 0);
  }
  // A rank that cannot launch, or whose kernel faults, aborts the others.
  for (const char* what : {"refuse_launch", "fault_launch"}) {
    if (knob(what, 0) != 0) continue;  // no such knob in this module
    gpu::Group* group = must_make(w);
    const uint64_t number = w.job.control().gate[0][w.job.rank()].value.load() + 1;
    Agreed agreed;
    agreed.count = 5000;
    agreed.dtype = Dtype::i32;
    Trial trial(w, agreed, w.agreed.next());
    w.job.gate(0, number);
    if (w.job.rank() == victim) knob(what, 1);
    Status status = w.job.module().start(group, trial.call());
    if (status.ok() && w.job.rank() == victim) status = wait_for(w, group, what);
    if (w.job.rank() == victim) {
      if (status.ok()) w.job.fail(text("{} went unnoticed", what));
      w.job.module().abort(group);
    } else if (wait_for(w, group, what, 20).ok()) {
      w.job.fail(text("{} of a peer gave success", what));
    }
    w.job.barrier();
    w.job.module().close(group);
    w.job.barrier();
  }
}

// A CPU load of device memory faults.
void case_hidden(World& w) {
  auto* memory =
      static_cast<volatile char*>(w.job.memory().allocate(Kind::device, w.job.device(), 64));
  pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    char byte = memory[5];
    _exit(byte == 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFSIGNALED(status)) w.job.fail("the program may read device memory");
  w.job.memory().release(Kind::device, const_cast<char*>(memory));
}

struct Case {
  const char* name;
  void (*run)(World&);
  bool emulated_only;
  bool needs_processes = false;  // the module's knobs are one set a process
};
constexpr Case cases[] = {{"kinds_and_copies", case_kinds_and_copies, false},
                          {"packing", case_packing, false, true},
                          {"random", case_random, false},
                          {"all_pairs", case_all_pairs, false},
                          {"few_ctas", case_few_ctas, false},
                          {"many_groups", case_many_groups, false},
                          {"linger", case_linger, false},
                          {"linger_some", case_linger_some, false},
                          {"linger_many_groups", case_linger_many_groups, false},
                          {"linger_abort", case_linger_abort, false},
                          {"linger_delays", case_linger_delays, true},
                          {"linger_close", case_linger_close, true},
                          {"linger_shared", case_linger_shared_device, true, true},
                          {"lanes_run_out", case_lanes_run_out, false},
                          {"no_peer", case_no_peer, false},
                          {"abort", case_abort, false},
                          {"epochs", case_epochs, true},
                          {"stale_epoch", case_stale_epoch, true, true},
                          {"delays", case_delays, true},
                          {"refusals", case_refusals, false, true},
                          {"hidden", case_hidden, true, true}};

struct Opened {
  const gpu::Module* module = nullptr;
};

Opened open_once(const Options& options) {
  Result<const gpu::Module*> module = gpu::open_module(options.module);
  if (!module.ok()) return {};
  void* handle = dlopen(options.module.c_str(), RTLD_NOW | RTLD_NOLOAD);
  knob =
      reinterpret_cast<Knob>(dlsym(handle, options.emulated ? "tutti_emu_set" : "tutti_cuda_set"));
  counter = reinterpret_cast<Counter>(
      dlsym(handle, options.emulated ? "tutti_emu_get" : "tutti_cuda_get"));
  return {*module};
}

int run_rank(const Options& options, Control* control, int rank, int nranks, Memory* memory) {
  static const Opened opened = open_once(options);  // once a process, also with ranks as threads
  if (!opened.module) return 1;
  Job job(control, rank, nranks, opened.module, memory);
  if (!opened.module->live()) job.fail("module is not live");
  if (!knob || !counter) job.fail("the module has no knobs");
  // The cases provoke what makes stays rare.
  knob("linger_eager", 1);
  for (const Case& c : cases) {
    if (!options.only.empty() && options.only != c.name) continue;
    if (c.emulated_only && !options.emulated) continue;
    if (c.needs_processes && options.threads) continue;
    World w{job, options, Random{mix(options.seed)},
            Random{mix(options.seed + 1 + static_cast<uint64_t>(rank))}};
    const double begin = now_seconds();
    c.run(w);
    job.barrier();
    if (rank == 0)
      std::printf("ok %d %s %-19s %.1f s\n", nranks, options.threads ? "threads" : "ranks", c.name,
                  now_seconds() - begin);
    std::fflush(stdout);
  }
  return 0;
}

std::string module_path(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  char self[4096] = {};
  if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return name;
  const std::string folder = std::string(self).substr(0, std::string(self).rfind('/'));
  const std::string file = "/libtutti_" + name + ".so";
  // libtool puts test programs in the build folder or in its .libs.
  const std::string beside = folder + file;
  return access(beside.c_str(), R_OK) == 0 ? beside : folder + "/.libs" + file;
}

Options parse(int argc, char** argv) {
  Options options;
  const option names[] = {
      {"threads", 0, nullptr, 't'},    {"module", 1, nullptr, 'm'},    {"ranks", 1, nullptr, 'r'},
      {"iterations", 1, nullptr, 'i'}, {"max-bytes", 1, nullptr, 'b'}, {"seed", 1, nullptr, 's'},
      {"only", 1, nullptr, 'o'},       {"lane", 1, nullptr, 'l'},      {nullptr, 0, nullptr, 0}};
  for (int c; (c = getopt_long(argc, argv, "", names, nullptr)) != -1;) {
    switch (c) {
      case 'm':
        options.module = optarg;
        break;
      case 'r':
        options.ranks = std::atoi(optarg);
        break;
      case 'i':
        options.iterations = std::atoi(optarg);
        break;
      case 'b':
        options.max_bytes = std::strtoull(optarg, nullptr, 0);
        break;
      case 's':
        options.seed = std::strtoull(optarg, nullptr, 0);
        break;
      case 'l':
        options.lane_bytes = std::strtoull(optarg, nullptr, 0);
        break;
      case 't':
        options.threads = true;
        break;
      case 'o':
        options.only = optarg;
        break;
      default:
        std::exit(2);
    }
  }
  if (options.seed == 0)
    options.seed = mix(static_cast<uint64_t>(now_seconds() * 1e9)) % 1000000007;
  options.emulated = options.module.find("emu") != std::string::npos;
  if (options.emulated && options.lane_bytes == 0)
    options.lane_bytes = options.seed % 4 ? gpu::smallest_lane_bytes : gpu::default_lane_bytes;
  options.module = module_path(options.module);
  return options;
}

int ring(int argc, char** argv) {
  const Options options = parse(argc, argv);
  std::string why;
  std::unique_ptr<Memory> memory;
  if (options.emulated) {
    memory = emulated_memory(options.module, &why);
    if (!memory) {
      std::fprintf(stderr, "%s\n", why.c_str());
      return 1;
    }
  } else if (access("/dev/nvidiactl", R_OK | W_OK) != 0) {
    std::printf("skipped: no NVIDIA device\n");
    return 77;
  }
  std::printf("seed %llu lane %llu\n", static_cast<unsigned long long>(options.seed),
              static_cast<unsigned long long>(options.lane_bytes));
  struct Run {
    int ranks;
    bool threads;
  };
  std::vector<Run> runs = {{options.ranks, options.threads}};
  if (options.ranks == 0) runs = {{2, options.threads}};
  if (options.ranks == 0 && options.emulated)
    runs = {{2, false}, {3, false}, {4, false}, {3, true}};  // aborts use lanes up: one in threads
  for (const Run& run : runs) {
    Options own_options = options;
    own_options.threads = run.threads;
    const auto body = [&](Control* control, int rank) {
      std::unique_ptr<Memory> own = options.emulated ? nullptr : cuda_memory(&why);
      if (!options.emulated && !own) {
        std::fprintf(stderr, "%s\n", why.c_str());
        return 1;
      }
      return run_rank(own_options, control, rank, run.ranks, own ? own.get() : memory.get());
    };
    const int result = run.threads ? run_threads(run.ranks, body) : run_ranks(run.ranks, 580, body);
    if (result != 0) {
      std::fprintf(stderr, "repeat with --seed %llu --ranks %d%s\n",
                   static_cast<unsigned long long>(options.seed), run.ranks,
                   run.threads ? " --threads" : "");
      return result;
    }
  }
  return 0;
}

}  // namespace
}  // namespace tutti::testing

int main(int argc, char** argv) {
  return tutti::testing::ring(argc, argv);
}
