#include "emu/group.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>

#include "base/text.hpp"
#include "emu/memory.hpp"
#include "emu/pool.hpp"
#include "gpu/kernel/linger.hpp"
#include "gpu/kernel/ll.hpp"
#include "gpu/kernel/move.hpp"
#include "gpu/kernel/push.hpp"

namespace tutti::emu {

namespace {

using namespace tutti::gpu;

constexpr uint64_t blob_magic = 0x756d652d74747475;  // "utt-emu"
constexpr int level_warn = 2;

using KernelFunction = void (*)(const Machine&, const KernelArgs&);
using M = Machine;
constexpr KernelFunction kernel_functions[] = {
#define TUTTI_KERNEL(name, threads, body) &body,
#include "gpu/kernels.def"
#include "gpu/kernels_move.def"
#undef TUTTI_KERNEL
};

std::mutex arena_mutex;
std::atomic<long> lingering_kernels{0};

std::map<int, Arena>& all_arenas() {
  static std::map<int, Arena>& arenas = *new std::map<int, Arena>;
  return arenas;
}

uint64_t monotonic_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

// The arena of a device, made by its first group. With the arena's lock held.
Result<Arena*> arena_for(int device, uint64_t lane_bytes) {
  std::map<int, Arena>& arenas = all_arenas();
  auto found = arenas.find(device);
  if (found != arenas.end()) return &found->second;
  const int64_t small = faults().small_lanes.load();
  LanePool lanes(lane_bytes ? lane_bytes : default_lane_bytes, small_lane_bytes,
                 small < 0 ? small_lane_count : static_cast<uint32_t>(small));
  if (refuse(faults().refuse_alloc)) {
    say(level_warn,
        text("allocation of {} bytes of lanes refused by the test", lanes.total_bytes()));
    return Code::no_memory;
  }
  int fd = memfd_create("tutti-emu-lanes", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(lanes.total_bytes())) != 0) {
    say(level_warn,
        text("no memory for {} bytes of lanes: {}", lanes.total_bytes(), strerror(errno)));
    if (fd >= 0) close(fd);
    return Code::no_memory;
  }
  void* memory = mmap(nullptr, lanes.total_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    say(level_warn, text("cannot map {} bytes of lanes: {}", lanes.total_bytes(), strerror(errno)));
    close(fd);
    return Code::no_memory;
  }
  Arena& arena = arenas[device];
  arena.fd = fd;
  arena.memory = static_cast<char*>(memory);
  arena.lanes = std::move(lanes);
  arena.line = std::make_unique<LingerLine>();
  arena.linger = std::make_unique<Linger>();
  arena.relay = std::make_unique<uint64_t[]>(command_words);
  arena.linger->open(arena.line.get(), arena.relay.get());
  return &arena;
}

uint64_t random_nonce() {
  uint64_t nonce = 0;
  while (nonce == 0)
    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce) nonce = 0;
  return nonce;
}

// The same in one process, different between processes (ids repeat between containers). Made anew
// after a fork.
uint64_t process_nonce() {
  static std::pair<pid_t, uint64_t> nonce;
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (nonce.first != getpid()) nonce = {getpid(), random_nonce()};
  return nonce.second;
}

}  // namespace

Result<std::unique_ptr<Group>> Group::prepare(const GroupSpec& spec, Blob* blob) {
  if (spec.nranks < 2 || spec.nranks > max_group || spec.rank < 0 || spec.rank >= spec.nranks)
    return Code::bad_argument;
  std::unique_ptr<Group> group(new Group(spec));
  std::lock_guard lock(arena_mutex);
  Result<Arena*> arena = arena_for(spec.device, spec.lane_bytes);
  if (!arena.ok()) return arena.status();
  std::optional<Lane> lane = (*arena)->lanes.take();
  if (!lane) {
    say(level_warn, text("no lane is left on device {} for another group", spec.device));
    return Code::no_resource;
  }
  group->arena_ = *arena;
  group->lane_ = *lane;
  if (refuse(faults().refuse_export)) {
    say(level_warn, "export of a lane refused by the test");
    return Code::no_resource;
  }
  char* memory = (*arena)->memory + lane->offset;
  std::memset(memory, 0,
              lane_cleared_bytes(lane_layout(lane->bytes, static_cast<uint32_t>(spec.nranks))));
  group->lanes_[spec.rank] = memory;
  group->epochs_ = EpochCounter(static_cast<uint64_t>(faults().first_call.load()));
  BlobData data;
  data.magic = blob_magic;
  data.process = process_nonce();
  data.pid = getpid();
  data.fd = (*arena)->fd;
  data.lane_offset = lane->offset;
  data.lane_bytes = lane->bytes;
  data.nonce = random_nonce();
  data.address = reinterpret_cast<uint64_t>(memory);
  data.cta_budget = spec.ctas ? std::max(spec.ctas, smallest_cta_budget) : 8;
  data.device = spec.device;
  std::memcpy(memory + lane_nonce_offset, &data.nonce, sizeof data.nonce);
  std::memcpy(blob->bytes, &data, sizeof data);
  return group;
}

Group::~Group() {
  if (linger_slot_) arena_->linger->remove(*linger_slot_);
  for (uint32_t r = 0; r < max_ranks; ++r)
    if (mapped_[r]) munmap(mapped_[r], mapped_bytes_[r]);
  if (!arena_ || aborted_) return;
  std::lock_guard lock(arena_mutex);
  arena_->lanes.give_back(lane_);
}

Status Group::map_peer(const BlobData& blob, uint32_t rank) {
  if (blob.magic != blob_magic) {
    say(level_warn, text("rank {} of the group works with another module", rank));
    return Code::unsupported;
  }
  if (refuse(faults().refuse_import)) {
    say(level_warn, text("import of the lane of rank {} refused by the test", rank));
    return Code::unsupported;
  }
  if (blob.process == process_nonce()) {
    lanes_[rank] = reinterpret_cast<char*>(blob.address);
    return Code::ok;
  }
  const std::string path = text("/proc/{}/fd/{}", blob.pid, blob.fd);
  int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    say(level_warn, text("cannot open {} of rank {}: {}", path, rank, strerror(errno)));
    return Code::unsupported;
  }
  void* memory = mmap(nullptr, blob.lane_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                      static_cast<off_t>(blob.lane_offset));
  int error = errno;
  close(fd);
  if (memory == MAP_FAILED) {
    say(level_warn, text("cannot map the lane of rank {}: {}", rank, strerror(error)));
    return Code::unsupported;
  }
  mapped_[rank] = lanes_[rank] = static_cast<char*>(memory);
  mapped_bytes_[rank] = blob.lane_bytes;
  uint64_t nonce = 0;
  std::memcpy(&nonce, lanes_[rank] + lane_nonce_offset, sizeof nonce);
  if (nonce == blob.nonce) return Code::ok;
  say(level_warn, text("{} is not the lane of rank {}: another pid namespace?", path, rank));
  return Code::unsupported;
}

Status Group::connect(const Blob* blobs) {
  if (spec_.force_no_peer) {
    say(level_warn, "devices taken as out of each other's reach (GPU_NO_PEER)");
    return Code::unsupported;
  }
  uint64_t lane_bytes = lane_.bytes;
  uint32_t budget = ~0u;
  for (uint32_t r = 0; r < static_cast<uint32_t>(spec_.nranks); ++r) {
    BlobData blob;
    std::memcpy(&blob, blobs[r].bytes, sizeof blob);
    if (r != static_cast<uint32_t>(spec_.rank)) TUTTI_TRY(map_peer(blob, r));
    // Two processes on a device would hold each other up.
    if (blob.device == spec_.device && blob.process != process_nonce()) arena_->linger->forbid();
    lane_bytes = std::min(lane_bytes, blob.lane_bytes);
    budget = std::min(budget, blob.cta_budget);
  }
  space_.nranks = static_cast<uint32_t>(spec_.nranks);
  space_.layout = lane_layout(lane_bytes, space_.nranks);
  space_.cta_budget = budget;
  space_.tuning = &tuning_emulated;
  if (spec_.linger_ns == 0) return Code::ok;
  LingerSlot slot{};
  for (uint32_t r = 0; r < space_.nranks; ++r) slot.lane[r] = lanes_[r];
  slot.layout = space_.layout;
  slot.nranks = space_.nranks;
  slot.rank = static_cast<uint32_t>(spec_.rank);
  slot.done = reinterpret_cast<uint32_t*>(&done_);
  slot.failed = reinterpret_cast<uint32_t*>(&failed_);
  slot.abort_word = reinterpret_cast<const uint32_t*>(&abort_);
  linger_slot_ = arena_->linger->add(slot);
  return Code::ok;
}

void Group::fill_args(const Call& call, const Plan& plan, KernelArgs& args) {
  args.send = static_cast<const char*>(alias(call.send));
  args.recv = static_cast<char*>(alias(call.recv));
  args.in_place = call.send == call.recv;
  args.layout = space_.layout;
  args.nranks = space_.nranks;
  args.rank = static_cast<uint32_t>(spec_.rank);
  for (uint32_t r = 0; r < args.nranks; ++r) args.lane[r] = lanes_[r];
  apply_plan(plan, args);
  if (call.agreed.coll == Coll::allgather && args.in_place)
    args.send = args.recv + args.rank * args.bytes;
  args.root = static_cast<uint32_t>(call.agreed.root);
  if (call.agreed.coll == Coll::bcast) args.send = args.recv;
  args.base = chunks_done_;
  args.sequence = sequence_;
  args.soft = call.recv_kind == Kind::device;
  args.done = reinterpret_cast<uint32_t*>(&done_);
  args.failed = reinterpret_cast<uint32_t*>(&failed_);
  args.abort_word = reinterpret_cast<const uint32_t*>(&abort_);
}

void Group::clear_other_inbox(uint32_t epoch) {
  const uint64_t bytes = (space_.nranks - 1) * space_.layout.ll_inbox_bytes;
  std::memset(lanes_[spec_.rank] + space_.layout.ll_offset + (1 - (epoch & 1)) * bytes, 0, bytes);
}

void Group::launch(std::shared_ptr<Launch> launch, const Plan& plan) {
  const uint64_t seed = static_cast<uint64_t>(faults().seed.load()) * 0x9e3779b97f4a7c15u ^
                        (static_cast<uint64_t>(spec_.rank) << 32 | sequence_);
  launch->barriers = std::make_unique<CtaBarrier[]>(plan.ctas);
  launch->running.store(plan.ctas * plan.threads);
  for (uint32_t cta = 0; cta < plan.ctas; ++cta)
    for (uint32_t thread = 0; thread < plan.threads; ++thread)
      run([launch, cta, thread, plan, seed] {
        Machine machine(thread, plan.threads, cta, plan.ctas, &launch->barriers[cta],
                        seed + cta * 1024 + thread);
        kernel_functions[static_cast<uint32_t>(plan.kernel)](machine, launch->args);
        launch->running.fetch_sub(1, std::memory_order_release);
      });
}

bool Group::begin_lingering(const Call& call, const Plan& plan, const KernelArgs& args) {
  if (!linger_slot_) return false;
  const auto command = linger_command(call, plan, space_, args, *linger_slot_);
  if (!command) return false;
  const Linger::Way way =
      arena_->linger->begin(this, *command, space_.nranks, spec_.linger_ns, monotonic_ns());
  lingering_ = way != Linger::Way::alone;
  if (way == Linger::Way::launch) launch_lingering();
  return lingering_;
}

void Group::launch_lingering() {
  auto launch = std::make_shared<LingerLaunch>();
  launch->args = arena_->linger->launch_args();
  const bool two = arena_->linger->launched_ranks() == 2;
  const uint64_t seed = static_cast<uint64_t>(faults().seed.load()) * 0x9e3779b97f4a7c15u ^
                        (static_cast<uint64_t>(spec_.rank) << 32 | launch->args.ring);
  const uint32_t ctas = arena_->linger->launched_ctas();
  launch->ctas = std::make_unique<TeamCta[]>(ctas);
  lingering_kernels.fetch_add(1);
  auto left = std::make_shared<std::atomic<uint32_t>>(ctas * Team::all_threads);
  for (uint32_t cta = 0; cta < ctas; ++cta)
    for (uint32_t thread = 0; thread < Team::all_threads; ++thread)
      run([launch, cta, ctas, thread, two, seed, left] {
        Team team(thread, cta, ctas, &launch->ctas[cta], seed + cta * 1024 + thread);
        two ? linger_kernel<Team, 2>(team, launch->args)
            : linger_kernel<Team, 8>(team, launch->args);
        if (left->fetch_sub(1) == 1) lingering_kernels.fetch_sub(1);
      });
}

Poll Group::poll_lingering() {
  if (done_.load(std::memory_order_acquire) != sequence_) {
    if (arena_->linger->missed()) launch_lingering();
    return Poll::busy();
  }
  lingering_ = false;
  arena_->linger->end();
  if (failed_.load(std::memory_order_acquire)) aborted_ = true;
  return aborted_ ? Poll::failed(Code::peer_lost) : Poll::done();
}

Status Group::start(const Call& call) {
  if (aborted_ || faulted_) return Code::device_fault;
  if (!native(call.agreed, spec_.nranks)) return Code::unsupported;
  if (refuse(faults().refuse_launch)) {
    say(level_warn, text("launch of {} refused by the test", name(call.agreed.coll)));
    return Code::no_resource;
  }
  ++sequence_;
  if (call.agreed.bytes() == 0) {
    done_.store(sequence_);
    return Code::ok;
  }
  const Plan plan = make_plan(call.agreed, space_);
  current_ = std::make_shared<Launch>();
  fill_args(call, plan, current_->args);
  if (plan.ll) {
    epochs_.skip(static_cast<uint64_t>(faults().skip_calls.exchange(0)));
    EpochCounter::Turn turn = epochs_.next();
    current_->args.epoch = turn.epoch;
    if (turn.clear_other) clear_other_inbox(turn.epoch);
  }
  chunks_done_ += plan.chunks;
  if (refuse(faults().fault_launch)) {
    faulted_ = true;
    say(level_warn, text("kernel {} faulted by the test", name(plan.kernel)));
    return Code::ok;
  }
  if (begin_lingering(call, plan, current_->args)) {
    current_ = nullptr;
    return Code::ok;
  }
  launch(current_, plan);
  return Code::ok;
}

Poll Group::poll() {
  if (faulted_) return Poll::failed(Code::device_fault);
  if (lingering_) return poll_lingering();
  if (done_.load(std::memory_order_acquire) != sequence_) return Poll::busy();
  if (current_ && current_->running.load(std::memory_order_acquire) != 0) return Poll::busy();
  current_ = nullptr;
  if (failed_.load(std::memory_order_acquire)) aborted_ = true;
  return aborted_ ? Poll::failed(Code::peer_lost) : Poll::done();
}

void Group::abort() {
  aborted_ = true;
  abort_.store(1, std::memory_order_release);
  for (uint32_t r = 0; r < static_cast<uint32_t>(spec_.nranks); ++r)
    if (lanes_[r])
      __atomic_store_n(reinterpret_cast<uint32_t*>(lanes_[r] + lane_abort_offset), 1u,
                       __ATOMIC_RELEASE);
}

long linger_count(std::string_view name) {
  if (name == "lingering") return lingering_kernels.load();
  std::lock_guard lock(arena_mutex);
  uint64_t sum = 0;
  for (const auto& [device, arena] : all_arenas()) {
    const Linger::Counts& counts = arena.linger->counts();
    if (name == "rung")
      sum += counts.rung.load();
    else if (name == "launched")
      sum += counts.launched.load();
    else if (name == "missed")
      sum += counts.missed.load();
    else
      return -1;
  }
  return static_cast<long>(sum);
}

}  // namespace tutti::emu
