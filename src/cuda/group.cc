#include "cuda/group.hpp"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <map>

#include "base/text.hpp"
#include "cuda/knobs.hpp"
#include "gpu/linger.hpp"

namespace tutti::cuda {

namespace {

using namespace tutti::gpu;

constexpr uint64_t blob_magic = 0x6164756374747475;  // "utttcuda"
constexpr size_t most_graphs = 64;
constexpr uint64_t fault_period_ns = 1'000'000;

uint64_t monotonic_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

CUdeviceptr pointer(const void* p) {
  return reinterpret_cast<CUdeviceptr>(p);
}

// Arenas of other processes, mapped once a device and kept: a mapping costs a millisecond, and the
// arenas live as long as their processes. With the lock of the devices held.
Result<char*> import_arena(const Device& device, const BlobData& blob) {
  static auto& imports = *new std::map<std::pair<int, uint64_t>, char*>;
  auto key = std::make_pair(device.ordinal, blob.arena_nonce);
  auto found = imports.find(key);
  if (found != imports.end()) return found->second;
  CUdeviceptr memory = 0;
  TUTTI_CU_TRY(cuIpcOpenMemHandle(&memory, blob.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  return imports[key] = reinterpret_cast<char*>(memory);
}

// The ordinal in this process of a device, or -1 when it is not visible here.
int find_device(const CUuuid& uuid) {
  int count = 0;
  if (cu().cuDeviceGetCount(&count) != CUDA_SUCCESS) return -1;
  for (int i = 0; i < count; ++i) {
    CUdevice handle;
    CUuuid other;
    if (cu().cuDeviceGet(&handle, i) == CUDA_SUCCESS &&
        cu().cuDeviceGetUuid(&other, handle) == CUDA_SUCCESS &&
        std::memcmp(&other, &uuid, sizeof uuid) == 0)
      return i;
  }
  return -1;
}

}  // namespace

Result<std::unique_ptr<Group>> Group::prepare(const GroupSpec& spec, Blob* blob) {
  if (spec.nranks < 2 || spec.nranks > max_group || spec.rank < 0 || spec.rank >= spec.nranks)
    return Code::bad_argument;
  std::unique_ptr<Group> group(new Group(spec));
  auto lock = lock_devices();
  Result<Device*> found = cuda::device(spec.device);
  if (!found.ok()) return found.status();
  Device& d = **found;
  group->device_ = &d;
  Scope scope(d.context);
  TUTTI_TRY(d.load_kernels());
  TUTTI_TRY(d.make_arena(spec.lane_bytes));
  std::optional<Lane> lane = d.lanes.take();
  if (!lane) {
    say(level_warn, text("device {}: no lane is left for another group; its calls go by the host",
                         spec.device));
    return Code::no_resource;
  }
  group->lane_ = *lane;
  group->has_lane_ = true;
  if (refuse(refusals().exports, "export of a lane")) return Code::no_resource;
  Result<HostLine*> line = d.take_line();
  if (!line.ok()) return line.status();
  group->line_ = *line;
  TUTTI_CU_TRY(cuStreamCreateWithPriority(&group->stream_, CU_STREAM_NON_BLOCKING, 0));
  const CUdeviceptr memory = d.arena + lane->offset;
  const Layout layout = lane_layout(lane->bytes, static_cast<uint32_t>(spec.nranks));
  TUTTI_CU_TRY(cuMemsetD8Async(memory, 0, lane_cleared_bytes(layout), group->stream_));
  TUTTI_CU_TRY(cuStreamSynchronize(group->stream_));
  group->lanes_[spec.rank] = reinterpret_cast<char*>(memory);
  BlobData data;
  data.magic = blob_magic;
  data.process = process_nonce();
  data.arena_nonce = d.arena_nonce;
  data.handle = d.arena_handle;
  data.arena_address = d.arena;
  data.lane_offset = lane->offset;
  data.lane_bytes = lane->bytes;
  data.uuid = d.uuid;
  data.device = d.ordinal;
  data.sms = d.sms;
  data.mps = d.mps;
  data.large = lane->bytes > small_lane_bytes;
  std::memcpy(blob->bytes, &data, sizeof data);
  return group;
}

Group::~Group() {
  if (!device_) return;
  if (linger_slot_) device_->linger.remove(*linger_slot_);
  auto lock = lock_devices();
  Scope scope(device_->context);
  for (Graph& graph : graphs_) cu().cuGraphExecDestroy(graph.exec);
  if (stream_) cu().cuStreamDestroy(stream_);
  // An aborted group's kernels and its peers' may still write: its lane and line stay apart.
  if (aborted_ || fault_ != Code::ok) return;
  if (line_) device_->give_back(line_);
  if (has_lane_) device_->lanes.give_back(lane_);
}

// Whether this device's kernels may store into the peer's lane and wait for its kernels.
Status Group::check_reach(const BlobData& blob, uint32_t rank) const {
  if (blob.magic != blob_magic) {
    say(level_warn, text("rank {} of the group works with another module", rank));
    return Code::unsupported;
  }
  const bool same_process = blob.process == process_nonce();
  if (std::memcmp(&blob.uuid, &device_->uuid, sizeof blob.uuid) == 0) {
    if (same_process || (blob.mps && device_->mps)) return Code::ok;
    // Two processes on a GPU without MPS take turns of milliseconds: no kernel may wait for the
    // other.
    say(level_warn,
        text("rank {} of the group shares device {} with this rank, and MPS is not running: "
             "the host path is taken; start nvidia-cuda-mps-control to use kernels",
             rank, device_->ordinal));
    return Code::unsupported;
  }
  const int ordinal = same_process ? blob.device : find_device(blob.uuid);
  if (ordinal < 0) return Code::ok;  // not visible here: opening the handle tells
  CUdevice peer;
  int reach = 0, atomics = 0;
  TUTTI_CU_TRY(cuDeviceGet(&peer, ordinal));
  TUTTI_CU_TRY(cuDeviceCanAccessPeer(&reach, device_->handle, peer));
  if (reach)
    TUTTI_CU_TRY(cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
                                         device_->handle, peer));
  if (reach && atomics) return Code::ok;
  // Native atomics tell NVLink from PCIe, where a 128-bit store is not known to arrive whole.
  say(level_warn, text("device {} {} the device of rank {}: the host path is taken",
                       device_->ordinal, reach ? "has no NVLink to" : "cannot reach", rank));
  return Code::unsupported;
}

Status Group::map_peer(const BlobData& blob, uint32_t rank) {
  TUTTI_TRY(check_reach(blob, rank));
  if (refuse(refusals().imports, "import of a lane")) return Code::unsupported;
  if (blob.process == process_nonce()) {
    if (blob.device != device_->ordinal) {
      Result<Device*> peer = cuda::device(blob.device);
      if (!peer.ok()) return peer.status();
      CUresult enabled = cu().cuCtxEnablePeerAccess((*peer)->context, 0);
      if (enabled != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        TUTTI_TRY(check(enabled, "cuCtxEnablePeerAccess"));
    }
    lanes_[rank] = reinterpret_cast<char*>(blob.arena_address + blob.lane_offset);
    return Code::ok;
  }
  Result<char*> arena = import_arena(*device_, blob);
  if (!arena.ok()) return Code::unsupported;
  lanes_[rank] = *arena + blob.lane_offset;
  return Code::ok;
}

// CTAs of one group, of the SMs that its rank has for itself. Calls of different groups may be in flight
// at once, begun in another order on each GPU: their waiting kernels must all be resident together, or
// each waits for SMs that the other holds. So the small lanes' groups get the fewest CTAs that work, and
// the large lane's group what they leave. 0: no room.
uint32_t Group::cta_share(uint32_t sms, bool large) {
  constexpr uint32_t reserved = small_lane_count * smallest_cta_budget;
  const bool room = sms >= reserved + smallest_cta_budget;
  if (large) return room ? sms - reserved : sms;
  return room ? smallest_cta_budget : 0;
}

Status Group::connect(const Blob* blobs) {
  if (spec_.force_no_peer) {
    say(level_warn, "devices taken as out of each other's reach (GPU_NO_PEER)");
    return Code::unsupported;
  }
  auto lock = lock_devices();
  Scope scope(device_->context);
  const auto n = static_cast<uint32_t>(spec_.nranks);
  BlobData all[max_ranks];
  for (uint32_t r = 0; r < n; ++r) std::memcpy(&all[r], blobs[r].bytes, sizeof all[r]);
  uint64_t lane_bytes = lane_.bytes;
  uint32_t budget = ~0u;
  for (uint32_t r = 0; r < n; ++r) {
    if (r != static_cast<uint32_t>(spec_.rank)) TUTTI_TRY(map_peer(all[r], r));
    lane_bytes = std::min(lane_bytes, all[r].lane_bytes);
    uint32_t sharers = 0;
    for (uint32_t s = 0; s < n; ++s)
      sharers += std::memcmp(&all[r].uuid, &all[s].uuid, sizeof all[r].uuid) == 0;
    const uint32_t share = cta_share(all[r].sms / sharers, all[r].large != 0);
    if (share == 0) {
      say(level_warn, text("device of rank {}: {} ranks on its {} SMs leave none for another group",
                           r, sharers, all[r].sms));
      return Code::unsupported;
    }
    budget = std::min(budget, share);
  }
  if (spec_.ctas) budget = std::min(budget, spec_.ctas);
  space_.nranks = n;
  space_.layout = lane_layout(lane_bytes, n);
  space_.cta_budget = std::max(budget, smallest_cta_budget);
  space_.tuning = tuning_in_force();
  if (spec_.linger_ns) join_linger(all);
  return Code::ok;
}

// Makes this group one of those that the device's lingering kernel serves; without that it works too.
void Group::join_linger(const BlobData* all) {
  for (uint32_t r = 0; r < space_.nranks; ++r) {
    const bool here = std::memcmp(&all[r].uuid, &device_->uuid, sizeof all[r].uuid) == 0;
    // Without MPS it would hold a time slice that a rank of another process waits for; with MPS it
    // takes an SM from that rank, which nobody has measured.
    if (here && all[r].process != process_nonce()) device_->linger.forbid();
  }
  if (!device_->open_linger().ok()) return;
  LingerSlot slot{};
  for (uint32_t r = 0; r < space_.nranks; ++r) slot.lane[r] = lanes_[r];
  slot.layout = space_.layout;
  slot.nranks = space_.nranks;
  slot.rank = static_cast<uint32_t>(spec_.rank);
  slot.done = &line_->done;
  slot.failed = &line_->failed;
  slot.abort_word = &line_->abort;
  linger_slot_ = device_->linger.add(slot);
}

bool Group::begin_lingering(const Call& call, const Plan& plan, const KernelArgs& args) {
  if (!linger_slot_) return false;
  const auto command = linger_command(call, plan, space_, args, *linger_slot_);
  if (!command) return false;
  const Linger::Way way =
      device_->linger.begin(this, *command, space_.nranks, spec_.linger_ns, monotonic_ns());
  lingering_ = way != Linger::Way::alone;
  if (way != Linger::Way::launch) return lingering_;
  if (Status launched = launch_lingering(); !launched.ok()) fault_ = launched.code();
  return true;
}

Status Group::launch_lingering() {
  Scope scope(device_->context);
  return device_->launch_linger();
}

void Group::fill_args(const Call& call, const Plan& plan, KernelArgs& args) {
  args.send = static_cast<const char*>(call.send);
  args.recv = static_cast<char*>(call.recv);
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
  args.done = &line_->done;
  args.failed = &line_->failed;
  args.abort_word = &line_->abort;
}

Status Group::clear_other_inbox(uint32_t epoch) {
  const uint64_t bytes = (space_.nranks - 1) * space_.layout.ll_inbox_bytes;
  const char* inbox = lanes_[spec_.rank] + space_.layout.ll_offset + (1 - (epoch & 1)) * bytes;
  TUTTI_CU_TRY(cuMemsetD8Async(pointer(inbox), 0, bytes, stream_));
  return Code::ok;
}

Result<Group::Graph*> Group::graph_for(const Plan& plan, const CUDA_KERNEL_NODE_PARAMS& params) {
  for (Graph& graph : graphs_)
    if (graph.kernel == plan.kernel && graph.ctas == plan.ctas && graph.threads == plan.threads)
      return &graph;
  Graph made{plan.kernel, plan.ctas, plan.threads, nullptr, nullptr};
  CUgraph graph = nullptr;
  TUTTI_CU_TRY(cuGraphCreate(&graph, 0));
  Status status = check(cu().cuGraphAddKernelNode(&made.node, graph, nullptr, 0, &params),
                        "cuGraphAddKernelNode");
  if (status.ok())
    status = check(cu().cuGraphInstantiate(&made.exec, graph, 0), "cuGraphInstantiate");
  if (!status.ok()) {
    cu().cuGraphDestroy(graph);
    return status;
  }
  // The graph stays: the node is its name in the executable one.
  if (graphs_.size() < most_graphs) {
    graphs_.push_back(made);
    return &graphs_.back();
  }
  Graph& old = graphs_[next_eviction_++ % most_graphs];
  cu().cuGraphExecDestroy(old.exec);
  old = made;
  return &old;
}

Status Group::launch(const Plan& plan, KernelArgs& args) {
  void* parameters[] = {&args};
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = device_->kernels[static_cast<uint32_t>(plan.kernel)];
  params.gridDimX = plan.ctas;
  params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = plan.threads;
  params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = parameters;
  Result<Graph*> graph = graph_for(plan, params);
  if (!graph.ok()) return graph.status();
  TUTTI_CU_TRY(cuGraphExecKernelNodeSetParams((*graph)->exec, (*graph)->node, &params));
  TUTTI_CU_TRY(cuGraphLaunch((*graph)->exec, stream_));
  return Code::ok;
}

Status Group::start(const Call& call) {
  if (aborted_ || fault_ != Code::ok) return Code::device_fault;
  if (!native(call.agreed, spec_.nranks)) return Code::unsupported;
  if (refuse(refusals().launches, "launch")) return Code::no_resource;
  ++sequence_;
  polls_ = 0;
  if (call.agreed.bytes() == 0) {
    line_->done = sequence_;
    return Code::ok;
  }
  const Plan plan = make_plan(call.agreed, space_);
  KernelArgs args{};
  fill_args(call, plan, args);
  bool clear_other = false;
  if (plan.ll) {
    const EpochCounter::Turn turn = epochs_.next();
    args.epoch = turn.epoch;
    clear_other = turn.clear_other;
    if (!clear_other && begin_lingering(call, plan, args)) return fault_;
  }
  chunks_done_ += plan.chunks;
  Scope scope(device_->context);
  if (clear_other) TUTTI_TRY(clear_other_inbox(args.epoch));
  Status launched = launch(plan, args);
  if (!launched.ok()) fault_ = launched.code();
  return launched;
}

// The kernel cannot tell that it faulted: once a millisecond the stream is asked.
Poll Group::look_for_faults() {
  const uint64_t now = monotonic_ns();
  if (polls_ == 0 || next_look_ns_ == 0) next_look_ns_ = now + fault_period_ns;
  if (now < next_look_ns_) return Poll::busy();
  next_look_ns_ = now + fault_period_ns;
  Scope scope(device_->context);
  CUresult state = cu().cuStreamQuery(lingering_ ? device_->linger_stream : stream_);
  if (state == CUDA_ERROR_NOT_READY) return Poll::busy();
  if (state == CUDA_SUCCESS) {
    // Over: the line was stored before the end.
    if (__atomic_load_n(&line_->done, __ATOMIC_ACQUIRE) == sequence_) return Poll::busy();
    if (lingering_ && device_->linger.has_left()) return Poll::busy();
    say(level_warn, text("device {}: a kernel ended without a word", device_->ordinal));
    fault_ = Code::device_fault;
  } else {
    fault_ = check(state, "kernel").code();
  }
  return Poll::failed(fault_);
}

Poll Group::poll() {
  if (fault_ != Code::ok) return Poll::failed(fault_);
  if (__atomic_load_n(&line_->done, __ATOMIC_ACQUIRE) != sequence_) {
    if (lingering_ && device_->linger.missed()) {
      if (Status launched = launch_lingering(); !launched.ok()) fault_ = launched.code();
    }
    constexpr uint32_t polls_between_clocks = 64;
    if (polls_ % polls_between_clocks == 0) {
      Poll look = look_for_faults();
      ++polls_;
      return look;
    }
    ++polls_;
    return Poll::busy();
  }
  if (lingering_) device_->linger.end();
  lingering_ = false;
  if (__atomic_load_n(&line_->failed, __ATOMIC_ACQUIRE)) aborted_ = true;
  return aborted_ ? Poll::failed(Code::peer_lost) : Poll::done();
}

void Group::abort() {
  aborted_ = true;
  __atomic_store_n(&line_->abort, 1u, __ATOMIC_RELEASE);
  Scope scope(device_->context);
  for (int r = 0; r < spec_.nranks; ++r) {
    if (!lanes_[r]) continue;
    const CUdeviceptr word = pointer(lanes_[r] + lane_abort_offset);
    // A write value needs no SM, which waiting kernels may all hold.
    if (!cu().cuStreamWriteValue32 ||
        cu().cuStreamWriteValue32(device_->control, word, 1, 0) != CUDA_SUCCESS)
      cu().cuMemsetD32Async(word, 1, 1, device_->control);
  }
}

}  // namespace tutti::cuda
