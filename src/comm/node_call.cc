#include "comm/node_call.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/log.hpp"

namespace tutti {

using shm::Reach;

namespace {

using shm::bit;

// Polls of a kernel between looks at the members' abort words.
constexpr uint32_t polls_between_abort_looks = 64;

Status copy_by_module(void* context, void* to, const void* from, size_t bytes) {
  const auto* copier = static_cast<const NodeCall::Copier*>(context);
  return copier->module->copy(copier->device, to, from, bytes);
}

}  // namespace

uint64_t signature(const Agreed& agreed) {
  uint64_t x = static_cast<uint64_t>(agreed.coll) | static_cast<uint64_t>(agreed.op) << 8 |
               static_cast<uint64_t>(agreed.dtype) << 16 |
               static_cast<uint64_t>(static_cast<uint32_t>(agreed.root)) << 24;
  x = (x ^ 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
  x ^= x >> 29;
  x = (x ^ agreed.count) * 0x94d049bb133111eb;
  for (uint64_t count : agreed.counts) x = (x ^ x >> 31 ^ count) * 0x94d049bb133111eb;
  return x;
}

DeviceGroup::DeviceGroup(shm::NodeGroup& group, const Config& config, std::string comm_name,
                         uint64_t linger_ns)
    : node_(group), config_(config), comm_name_(std::move(comm_name)), linger_ns_(linger_ns) {}

DeviceGroup::~DeviceGroup() {
  if (group_ != nullptr) module_->close(group_);
}

void DeviceGroup::offer(const gpu::Module* module, int device) {
  module_ = module;
  device_ = device;
  gpu::GroupSpec spec;
  spec.nranks = node_.nranks();
  spec.rank = node_.rank();
  spec.device = device;
  spec.lane_bytes = config_.gpu_lane_bytes;
  spec.ctas = static_cast<uint32_t>(config_.gpu_ctas);
  spec.force_no_peer = config_.gpu_no_peer;
  spec.linger_ns = linger_ns_;
  gpu::Blob blob{};
  own_ = module->prepare(spec, &group_, &blob);
  if (!own_.ok()) group_ = nullptr;
  const uint64_t round = node_.next_round();
  std::byte* lane = node_.in_lane(node_.rank(), round, false);
  const auto code = static_cast<uint64_t>(own_.code());
  std::memcpy(lane, &code, sizeof code);
  std::memcpy(lane + sizeof code, &blob, sizeof blob);
  node_.publish_in(round);
  cursor_ = 0;
}

// Reads what all offered in this round; false while somebody is missing.
bool DeviceGroup::collect() {
  const uint64_t round = node_.next_round();
  for (; cursor_ < node_.nranks(); ++cursor_)
    if (!node_.arrived_in(cursor_, round)) return false;
  blobs_.resize(static_cast<size_t>(node_.nranks()));
  for (int r = 0; r < node_.nranks(); ++r) {
    const std::byte* lane = node_.in_lane(r, round, false);
    uint64_t code = 0;
    std::memcpy(&code, lane, sizeof code);
    std::memcpy(&blobs_[static_cast<size_t>(r)], lane + sizeof code, sizeof(gpu::Blob));
    if (code != 0 && own_.ok()) own_ = static_cast<Code>(code);
  }
  node_.finish_rounds(1);
  return true;
}

void DeviceGroup::settle() {
  if (own_.ok()) {
    state_ = State::ready;
    return;
  }
  // The rank that knows more has said it.
  const char* why = own_ == Status(Code::unsupported)
                        ? "devices that do not reach each other, or that ranks share without MPS"
                        : own_.text();
  state_ = State::failed;
  if (group_ != nullptr) module_->close(group_);
  group_ = nullptr;
  if (config_.require.p2p) {
    TUTTI_ERROR("comm", "{}: TUTTI_REQUIRE names p2p, but the GPUs cannot be joined: {}",
                comm_name_, why);
    return;
  }
  if (node_.rank() == 0)
    TUTTI_WARN("comm", "{}: device buffers go through shared memory, not NVLink: {}", comm_name_,
               why);
}

Poll DeviceGroup::connect(const gpu::Module* module, int device) {
  if (state_ == State::untried) {
    offer(module, device);
    state_ = State::blobs;
  }
  if (state_ == State::blobs) {
    if (!collect()) return Poll::busy();
    if (own_.ok()) own_ = module_->connect(group_, blobs_.data());
    const uint64_t round = node_.next_round();
    const auto code = static_cast<uint64_t>(own_.code());
    std::memcpy(node_.in_lane(node_.rank(), round, false), &code, sizeof code);
    node_.publish_in(round);
    cursor_ = 0;
    state_ = State::verdicts;
  }
  if (state_ == State::verdicts) {
    if (!collect()) return Poll::busy();
    settle();
  }
  if (state_ == State::failed && config_.require.p2p) return Poll::failed(own_);
  return Poll::done();
}

void NodeCall::look_at_buffers() {
  reach_ = Reach::host;
  module_ = context_.process->live_module();
  if (module_ == nullptr) return;
  const Local& local = problem_.local;
  struct End {
    const void* pointer;
    Buffer known;
  };
  End recv{local.recv, recv_};
  End send = local.in_place ? recv : End{local.send, send_};
  // At the root of a scatter in place there is no recv.
  if (send.pointer == nullptr) send = {local.send, send_};
  // A buffer that does not exist is of the other's kind.
  if (recv.pointer == nullptr || recv.known == Buffer::missing) recv = send;
  if (send.pointer == nullptr || send.known == Buffer::missing) send = recv;
  // So is pinned memory, as far as kernels are concerned.
  const bool pinned_recv = recv.known == Buffer::pinned, pinned_send = send.known == Buffer::pinned;
  if (pinned_recv && pinned_send) return;
  std::array<const void*, 2> pointers = {pinned_recv ? send.pointer : recv.pointer,
                                         pinned_send ? recv.pointer : send.pointer};
  const int n = pointers[0] == pointers[1] ? 1 : 2;
  std::array<gpu::Pointer, 2> found{};
  module_->query(pointers.data(), n, found.data());
  if (n == 1) found[1] = found[0];
  recv_kind_ = pinned_recv ? gpu::Kind::pinned : found[0].kind;
  send_kind_ = pinned_send ? gpu::Kind::pinned : found[1].kind;
  bool host = true;
  bool device = true;
  for (const gpu::Pointer& pointer : found) {
    host &= gpu::host_readable(pointer.kind);
    device &= gpu::device_readable(pointer.kind);
    if (pointer.device >= 0 && gpu::device_readable(pointer.kind)) device_ = pointer.device;
  }
  const DeviceGroup& group = *context_.device;
  const bool same = found[0].device == found[1].device &&
                    (group.device() < 0 || found[0].device == group.device());
  if (host)
    reach_ = device && same ? Reach::either : Reach::host;
  else
    reach_ = device && same ? Reach::device : Reach::other;
}

shm::Access NodeCall::access() {
  shm::Access access;
  access.direct = reach_ == Reach::host || reach_ == Reach::either;
  if (!access.direct) {
    copier_ = {module_, device_};
    access.copy = copy_by_module;
    access.context = &copier_;
  }
  return access;
}

Status NodeCall::start() {
  const Agreed& agreed = problem_.agreed;
  const Local& local = problem_.local;
  shm::NodeGroup& group = *context_.group;
  shm::Rounds& rounds = context_.rounds(agreed.coll);
  phase_ = Phase::gate;
  laid_out_ = false;
  const bool any = !empty() && local.error == Code::ok;
  if (context_.device != nullptr && any) look_at_buffers();
  shm::Announcement announcement;
  announcement.signature = signature(agreed);
  announcement.detail = static_cast<uint32_t>(agreed.coll) |
                        static_cast<uint32_t>(agreed.dtype) << 8 |
                        static_cast<uint32_t>(agreed.op) << 16;
  announcement.count = agreed.count;
  announcement.reach = reach_;
  announcement.error = local.error;
  const bool direct = reach_ == Reach::host || reach_ == Reach::either;
  if (any && direct && fits_inline()) {
    announcement.payload = own_input();
    announcement.inline_length = static_cast<uint8_t>(input_bytes());
  } else if (any) {
    rounds.prepare(agreed, local, access());
    // Managed memory may yet go by a kernel, and a round once published must be finished.
    if (reach_ == Reach::host) announcement.laid_out = rounds.lay_out_first();
    laid_out_ = announcement.laid_out;
  }
  group.announce(announcement);
  return {};
}

Poll NodeCall::poll() {
  switch (phase_) {
    case Phase::gate: {
      Poll gate = context_.group->gate();
      if (!gate.finished() || !gate.status().ok()) return gate;
      return after_gate();
    }
    case Phase::connect: {
      Poll connected = context_.device->connect(module_, device_);
      if (!connected.finished() || !connected.status().ok()) return connected;
      return context_.device->state() == DeviceGroup::State::ready ? begin_kernel()
                                                                   : begin_rounds();
    }
    case Phase::kernel: {
      const gpu::Module* module = context_.device->module();
      if (++looks_ % polls_between_abort_looks == 0 && context_.group->aborted() != Code::ok)
        module->abort(context_.device->group());
      Poll kernel = module->poll(context_.device->group());
      if (kernel.finished() && !kernel.status().ok()) context_.group->abort(kernel.status().code());
      return kernel;
    }
    case Phase::rounds:
      return context_.rounds(problem_.agreed.coll).poll(context_.group->summary().all_laid_out);
    case Phase::done:
      return Poll::done();
  }
  return Poll::failed(Code::internal);
}

Poll NodeCall::after_gate() {
  const shm::Summary& summary = context_.group->summary();
  const Agreed& agreed = problem_.agreed;
  if (problem_.local.error != Code::ok) {
    context_.group->abort(problem_.local.error);
    return Poll::failed(problem_.local.error);
  }
  if (empty()) {
    phase_ = Phase::done;
    return Poll::done();
  }
  constexpr uint32_t kernel_reaches = bit(Reach::device) | bit(Reach::either);
  if (context_.device != nullptr && (summary.reaches & ~kernel_reaches) == 0 &&
      (summary.reaches & bit(Reach::device)) != 0 &&
      gpu::native(agreed, context_.group->nranks())) {
    switch (context_.device->state()) {
      case DeviceGroup::State::ready:
        return begin_kernel();
      case DeviceGroup::State::failed:
        if (context_.device->required()) return Poll::failed(Code::no_device);
        break;
      default:
        phase_ = Phase::connect;
        return poll();
    }
  }
  if (summary.all_inline) return take_inline();
  return begin_rounds();
}

bool NodeCall::empty() const {
  const Agreed& agreed = problem_.agreed;
  if (agreed.coll == Coll::barrier) return true;
  if (agreed.counts.empty()) return agreed.count == 0;
  return std::all_of(agreed.counts.begin(), agreed.counts.end(),
                     [](uint64_t count) { return count == 0; });
}

// Bytes of a rank's part of the input.
uint64_t NodeCall::input_bytes() const {
  const Agreed& agreed = problem_.agreed;
  const auto n = static_cast<uint64_t>(context_.group->nranks());
  return agreed.bytes() * (agreed.coll == Coll::scatter ? n : 1);
}

// Whether a rank's part of the input travels in its header, should all be host memory.
bool NodeCall::fits_inline() const {
  switch (problem_.agreed.coll) {
    case Coll::allreduce:
    case Coll::allgather:
    case Coll::bcast:
    case Coll::gather:
    case Coll::scatter:
    case Coll::reduce:
      return input_bytes() <= shm::inline_bytes;
    default:
      return false;
  }
}

// nullptr where this rank gives nothing.
const std::byte* NodeCall::own_input() const {
  const Agreed& agreed = problem_.agreed;
  const Local& local = problem_.local;
  const int me = context_.group->rank();
  const auto* recv = static_cast<const std::byte*>(local.recv);
  switch (agreed.coll) {
    case Coll::bcast:
      return me == agreed.root ? recv : nullptr;
    case Coll::scatter:
      return me == agreed.root ? static_cast<const std::byte*>(local.send) : nullptr;
    case Coll::allgather:
    case Coll::gather:
      if (local.in_place) return recv + agreed.bytes() * static_cast<uint64_t>(me);
      break;
    default:
      if (local.in_place) return recv;
  }
  return static_cast<const std::byte*>(local.send);
}

Poll NodeCall::take_inline() {
  const Agreed& agreed = problem_.agreed;
  const shm::NodeGroup& group = *context_.group;
  const int n = group.nranks();
  const int me = group.rank();
  const size_t bytes = agreed.bytes();
  const bool is_root = me == agreed.root;
  auto* recv = static_cast<std::byte*>(problem_.local.recv);
  phase_ = Phase::done;
  switch (agreed.coll) {
    case Coll::bcast:
      if (!is_root) std::memcpy(recv, group.header(agreed.root).payload, bytes);
      return Poll::done();
    case Coll::scatter:
      // In place the root has no recv.
      if (!is_root || !problem_.local.in_place)
        std::memcpy(recv, group.header(agreed.root).payload + bytes * static_cast<size_t>(me),
                    bytes);
      return Poll::done();
    case Coll::gather:
      if (!is_root) return Poll::done();
      [[fallthrough]];
    case Coll::allgather:
      for (int r = 0; r < n; ++r, recv += bytes) std::memcpy(recv, group.header(r).payload, bytes);
      return Poll::done();
    default:
      if (agreed.coll == Coll::reduce && !is_root) return Poll::done();
  }
  std::array<const void*, shm::max_members> parts;
  for (int r = 0; r < n; ++r) parts[static_cast<size_t>(r)] = group.header(r).payload;
  shm::find_reducer(agreed.op, agreed.dtype)->many(recv, parts.data(), n, agreed.count);
  return Poll::done();
}

Poll NodeCall::begin_kernel() {
  gpu::Call call;
  call.agreed = problem_.agreed;
  // At the root of a scatter in place there is no recv.
  const bool in_recv = problem_.local.in_place && problem_.local.recv != nullptr;
  call.send = in_recv ? problem_.local.recv : problem_.local.send;
  call.recv = problem_.local.recv;
  call.recv_kind = recv_kind_;
  call.send_kind = send_kind_;
  if (Status status = context_.device->module()->start(context_.device->group(), call);
      !status.ok()) {
    context_.group->abort(status.code());
    return Poll::failed(status);
  }
  phase_ = Phase::kernel;
  return poll();
}

Poll NodeCall::begin_rounds() {
  // A rank whose payload lay in its header, or whose managed memory waited for the summary, has not
  // prepared or laid out yet; the rounds do that first.
  if (!laid_out_)
    context_.rounds(problem_.agreed.coll).prepare(problem_.agreed, problem_.local, access());
  phase_ = Phase::rounds;
  return poll();
}

void NodeCall::abort(Status why) {
  context_.group->abort(why.code());
  if (phase_ == Phase::kernel) context_.device->module()->abort(context_.device->group());
}

// The first rank that this call waits for, -1 where it waits for none or for all alike.
int NodeCall::missing() const {
  if (phase_ == Phase::gate) return context_.group->missing();
  if (phase_ == Phase::rounds) return context_.rounds(problem_.agreed.coll).missing();
  return -1;
}

Status NodeCall::check_peers() {
  const int first = missing();
  for (int r = 0; r < context_.group->nranks(); ++r)
    if ((first < 0 || r == first) && !context_.processes[static_cast<size_t>(r)].alive())
      return Code::peer_lost;
  return {};
}

const char* NodeCall::phase() const {
  switch (phase_) {
    case Phase::gate:
      return "entering";
    case Phase::connect:
      return "connecting devices";
    case Phase::kernel:
      return "kernel";
    case Phase::rounds:
      return context_.rounds(problem_.agreed.coll).phase();
    case Phase::done:
      return "done";
  }
  return "";
}

std::string NodeCall::waiting_for() const {
  const int first = missing();
  if (first < 0) return "the device";
  std::string names = context_.members[static_cast<size_t>(first)];
  // At the gate it costs nothing to name all.
  for (int r = first + 1; phase_ == Phase::gate && r < context_.group->nranks(); ++r) {
    const shm::NodeGroup& group = *context_.group;
    if (group.header(r).sequence.load(std::memory_order_relaxed) < group.sequence())
      names += ", " + context_.members[static_cast<size_t>(r)];
  }
  return names;
}

}  // namespace tutti
