#include "comm/setup.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/log.hpp"
#include "comm/peer_process.hpp"

namespace tutti {

namespace {

// Raised when the record or what lies behind it changes: ranks of one job may load different
// builds.
constexpr uint64_t setup_version = 1;

}  // namespace

uint64_t SetupRecord::compute_check() const {
  SetupRecord copy = *this;
  copy.check = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(&copy);
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (size_t i = 0; i < sizeof copy; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash == 0 ? 1 : hash;
}

Setup::Setup(const BaseComm& base, Process& process, const Config& config)
    : base_(base), process_(process), config_(config) {
  records_.resize(static_cast<size_t>(base.nranks));
}

void Setup::reserve() {
  std::memset(static_cast<void*>(&own_), 0, sizeof own_);  // padding is in the check sum too
  own_.version = setup_version;
  own_.config_hash = agreed_hash(config_);
  own_.device_possible = process_.device_possible();
  process_.host_name().copy(own_.host, sizeof own_.host - 1);
  auto pool = process_.slots();
  Status status = pool.status();
  if (pool.ok()) {
    auto grant = (*pool)->take(static_cast<uint32_t>(base_.nranks));
    status = grant.status();
    if (grant.ok()) {
      grant_ = *grant;
      own_.segment = (*pool)->segment()->name();
      own_.slot_offset = grant->slot_offset;
      own_.lane = grant->lane;
    } else {
      TUTTI_WARN("comm", "{}: all {} board slots are in use; free communicators, or it goes below",
                 base_.name, shm::SlotPool::slot_count);
    }
  }
  own_.status = static_cast<uint32_t>(status.code());
  own_.check = own_.compute_check();
}

Status Setup::start() {
  reserve();
  Status status =
      base_.allgather_start(base_.handle, &own_, records_.data(), sizeof(SetupRecord), &request_);
  if (!status.ok()) {
    TUTTI_ERROR("comm", "{}: the MPI below refused the allgather of set-up", base_.name);
    code_ = status.code();
    reason_ = "the MPI below refused the allgather of set-up";
    phase_ = Phase::done;
  }
  return {};
}

bool Setup::all_records_here() {
  for (; cursor_ < base_.nranks; ++cursor_) {
    // The base, perhaps on another thread, writes these bytes: look at a copy, and believe it only
    // if its check sum holds.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    SetupRecord copy;
    std::memcpy(static_cast<void*>(&copy), &records_[static_cast<size_t>(cursor_)], sizeof copy);
    if (copy.check == 0 || copy.check != copy.compute_check()) return false;
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  return true;
}

void Setup::attach() {
  const SetupRecord& first = records_[0];
  for (int r = 0; r < base_.nranks; ++r) {
    const SetupRecord& record = records_[static_cast<size_t>(r)];
    any_device_possible_ |= record.device_possible != 0;
    if (record.version != first.version) {
      code_ = Code::bad_setting;
      reason_ = text("rank {} runs another version of tutti than rank 0", r);
    } else if (record.config_hash != first.config_hash) {
      code_ = Code::bad_setting;
      reason_ = text("rank {} (host {}) has other TUTTI_ settings than rank 0", r, record.host);
    } else if (record.status != 0) {
      code_ = static_cast<Code>(record.status);
      reason_ = text("rank {} (host {}): {}", r, record.host, Status(code_).text());
    }
    if (code_ != Code::ok) return;
  }
  members_.resize(records_.size());
  for (int r = 0; r < base_.nranks; ++r) {
    const SetupRecord& record = records_[static_cast<size_t>(r)];
    shm::Member& member = members_[static_cast<size_t>(r)];
    auto segment = shm::Segment::map(record.segment);
    if (!segment.ok()) {
      // Go on: whoever is reached must learn of the failure.
      code_ = segment.status().code();
      reason_ = text("rank {} cannot map the segment of rank {} (host {}, pid {})", base_.rank, r,
                     record.host, record.segment.pid);
      continue;
    }
    member.segment = *segment;
    member.slot = reinterpret_cast<shm::Slot*>(member.segment->at(record.slot_offset));
    if (record.lane.offset != 0) member.lane = member.segment->at(record.lane.offset);
  }
  members_[static_cast<size_t>(base_.rank)].slot->ready.store(1 + static_cast<uint32_t>(code_),
                                                              std::memory_order_release);
}

// What all ranks together conclude; nothing while somebody has not said. A rank that cannot map a
// peer fails itself and says so to all it can reach, so either all are well or all know.
std::optional<Code> Setup::verdict() {
  Code worst = code_;
  for (int r = 0; r < base_.nranks; ++r) {
    const shm::Member& member = members_[static_cast<size_t>(r)];
    if (member.slot == nullptr) continue;
    const uint32_t ready = member.slot->ready.load(std::memory_order_acquire);
    if (ready == 0) return std::nullopt;
    if (ready != 1 && worst == Code::ok) {
      worst = static_cast<Code>(ready - 1);
      reason_ = text("rank {} (host {}) could not map every segment", r,
                     records_[static_cast<size_t>(r)].host);
    }
  }
  return worst;
}

void Setup::conclude() {
  phase_ = Phase::done;
  if (code_ == Code::ok) {
    uint64_t lane_bytes = records_[0].lane.bytes;
    for (const SetupRecord& record : records_) lane_bytes = std::min(lane_bytes, record.lane.bytes);
    group_ = std::make_unique<shm::NodeGroup>(base_.rank, members_, lane_bytes);
    TUTTI_DEBUG("comm", "{}: {} ranks on one node, lanes of {} bytes{}", base_.name, base_.nranks,
                lane_bytes, any_device_possible_ ? ", devices possible" : "");
    return;
  }
  // The rank that knows says it loudly; the others need not repeat it.
  if (base_.rank == 0)
    TUTTI_WARN("comm", "{}: every collective goes to the MPI below: {}", base_.name, reason_);
  else
    TUTTI_INFO("comm", "{}: every collective goes to the MPI below: {}", base_.name, reason_);
}

Poll Setup::poll() {
  switch (phase_) {
    case Phase::gather:
      if (!all_records_here()) return Poll::busy();
      phase_ = Phase::attach;
      [[fallthrough]];
    case Phase::attach:
      attach();
      if (members_.empty()) {  // the records alone decided, for all ranks alike
        conclude();
        return Poll::done();
      }
      phase_ = Phase::agree;
      [[fallthrough]];
    case Phase::agree: {
      std::optional<Code> all = verdict();
      if (!all.has_value()) return Poll::busy();
      code_ = *all;
      conclude();
      return Poll::done();
    }
    case Phase::done:
      return Poll::done();
  }
  return Poll::done();
}

void Setup::abort(Status why) {
  code_ = why.code();
  reason_ = text("set-up was ended: {}", why.text());
  phase_ = Phase::done;
}

void Setup::reap() {
  while (request_ != nullptr) {
    if (base_.allgather_test(request_).finished()) request_ = nullptr;
  }
}

void Setup::release() {
  reap();
  for (int r = 0; r < base_.nranks; ++r) {
    if (r == base_.rank || members_.empty()) continue;
    if (shm::Slot* slot = members_[static_cast<size_t>(r)].slot; slot != nullptr)
      slot->released.fetch_add(1, std::memory_order_acq_rel);
  }
  // A slot that some peer could not map is never released by it and stays in use: 36 KiB, once.
  if (grant_.has_value())
    if (auto pool = process_.slots(); pool.ok())
      (*pool)->give_back(*grant_, static_cast<uint32_t>(base_.nranks));
  grant_.reset();
  members_.clear();
}

Status Setup::check_peers() {
  if (phase_ != Phase::agree) return {};
  for (int r = 0; r < base_.nranks; ++r) {
    const shm::Member& member = members_[static_cast<size_t>(r)];
    if (member.slot == nullptr || member.slot->ready.load(std::memory_order_relaxed) != 0) continue;
    if (!PeerProcess(records_[static_cast<size_t>(r)].segment.pid).alive()) return Code::peer_lost;
  }
  return {};
}

const char* Setup::phase() const {
  switch (phase_) {
    case Phase::gather:
      return "set-up: gathering records";
    case Phase::attach:
    case Phase::agree:
      return "set-up: mapping segments";
    case Phase::done:
      return "set-up: done";
  }
  return "";
}

std::string Setup::waiting_for() const {
  std::string missing;
  for (int r = 0; r < base_.nranks; ++r) {
    const SetupRecord& record = records_[static_cast<size_t>(r)];
    const bool here = phase_ == Phase::gather
                          ? record.check != 0
                          : members_[static_cast<size_t>(r)].slot == nullptr ||
                                members_[static_cast<size_t>(r)].slot->ready.load() != 0;
    if (here) continue;
    if (!missing.empty()) missing += ", ";
    missing += phase_ == Phase::gather
                   ? text("rank {}", r)
                   : text("rank {} (host {}, pid {})", r, record.host, record.segment.pid);
  }
  return missing;
}

}  // namespace tutti
