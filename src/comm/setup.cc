#include "comm/setup.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>

#include "base/hash.hpp"
#include "base/log.hpp"
#include "comm/peer_process.hpp"
#include "engine/engine.hpp"

namespace tutti {

namespace {

// Raised when the records or what lies behind them change: ranks of one job may load different
// builds.
constexpr uint64_t setup_version = 2;

// The check sum of a message, computed as if it were 0 where it stands.
uint64_t check_of(void* message, size_t bytes, size_t check_offset) {
  uint64_t given = 0;
  auto* at = static_cast<std::byte*>(message) + check_offset;
  std::memcpy(&given, at, sizeof given);
  std::memset(at, 0, sizeof given);
  const uint64_t sum = hash_of(message, bytes);
  std::memcpy(at, &given, sizeof given);
  return sum == 0 ? 1 : sum;
}

// The base, perhaps on another thread, writes what comes: look at a copy, and believe it only if its
// check sum holds.
bool has_come(const void* message, void* copy, size_t bytes, size_t check_offset) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::memcpy(copy, message, bytes);
  uint64_t given = 0;
  std::memcpy(&given, static_cast<std::byte*>(copy) + check_offset, sizeof given);
  return given != 0 && given == check_of(copy, bytes, check_offset);
}

// How long messages may take to arrive that every rank sends when it has seen that all have come. A rank
// that computes meanwhile does not answer; a network that lets nothing pass never does.
constexpr uint64_t meeting_ns = 10'000'000'000;

std::vector<int32_t> ranks_here(const BaseComm& base) {
  std::vector<int32_t> here;
  const auto own = static_cast<size_t>(base.rank);
  for (int32_t r = 0; r < base.nranks; ++r)
    if (base.nodes.empty() || base.nodes[static_cast<size_t>(r)] == base.nodes[own])
      here.push_back(r);
  return here;
}

}  // namespace

Setup::Setup(const BaseComm& base, Process& process, const Config& config, bool several_threads)
    : base_(base),
      process_(process),
      config_(config),
      several_threads_(several_threads),
      here_(ranks_here(base)),
      wire_(std::make_unique<Wire>()) {
  place_ = static_cast<int>(std::find(here_.begin(), here_.end(), base.rank) - here_.begin());
  static_assert(sizeof(SetupRecord) % sizeof(uint64_t) == 0);
  static_assert(sizeof(NetRecord) % sizeof(uint64_t) == 0);
  wire_->own.resize(wire_bytes() / sizeof(uint64_t));
  wire_->copy.resize(wire_->own.size());
  wire_->all.resize(wire_->own.size() * static_cast<size_t>(base.nranks));
}

Setup::~Setup() = default;

const SetupRecord& Setup::record(int rank) const {
  return *reinterpret_cast<const SetupRecord*>(wire_->all.data() +
                                               wire_->own.size() * static_cast<size_t>(rank));
}

const NetRecord& Setup::net_record(int rank) const {
  return *reinterpret_cast<const NetRecord*>(&record(rank) + 1);
}

std::string Setup::rank_text(int rank) const {
  return text("rank {} (host {}, pid {})", rank, record(rank).host, record(rank).segment.pid);
}

void Setup::fail(Code code, std::string reason) {
  if (code_ != Code::ok) return;
  code_ = code;
  reason_ = std::move(reason);
}

Status Setup::reserve_slot() {
  auto& own = *reinterpret_cast<SetupRecord*>(wire_->own.data());
  if (here_.size() < shm::min_members) return {};
  auto pool = process_.slots();
  TUTTI_TRY(pool.status());
  auto grant = (*pool)->take(static_cast<uint32_t>(here_.size()));
  TUTTI_TRY(grant.status());
  grant_ = *grant;
  own.segment = (*pool)->segment()->name();
  own.slot_offset = grant->slot_offset;
  own.lane = grant->lane;
  return {};
}

Status Setup::reserve_network() {
  if (!several_nodes()) return {};
  auto& own = *reinterpret_cast<NetRecord*>(reinterpret_cast<SetupRecord*>(wire_->own.data()) + 1);
  auto network = process_.fabric().open(config_, several_threads_);
  TUTTI_TRY(network.status());
  auto key = process_.fabric().take_key();
  TUTTI_TRY(key.status());
  key_ = *key;
  own.key = *key;
  own.rdma = (*network)->rdma();
  const net::Address address = (*network)->address();
  if (address.bytes > sizeof own.address) {
    TUTTI_WARN("comm",
               "this process's network address has {} bytes, of {}: name fewer devices in "
               "TUTTI_NET_DEVICES",
               address.bytes, sizeof own.address);
    return Code::unsupported;
  }
  own.address_bytes = static_cast<uint32_t>(address.bytes);
  std::memcpy(own.address, address.data, address.bytes);
  return {};
}

void Setup::reserve() {
  std::fill(wire_->own.begin(), wire_->own.end(), 0);  // padding is in the check sum too
  auto& own = *reinterpret_cast<SetupRecord*>(wire_->own.data());
  own.version = setup_version;
  own.config_hash = agreed_hash(config_) ^ process_.tuning_file().hash;
  own.device_possible = process_.device_possible();
  own.segment.pid = getpid();
  process_.host_name().copy(own.host, sizeof own.host - 1);
  Status status = reserve_slot();
  if (status.ok()) status = reserve_network();
  own.status = static_cast<uint32_t>(status.code());
  own.check = check_of(&own, wire_bytes(), offsetof(SetupRecord, check));
}

Status Setup::start() {
  reserve();
  Status status = base_.allgather_start(base_.handle, wire_->own.data(), wire_->all.data(),
                                        wire_bytes(), &requests_[0]);
  if (!status.ok()) {
    TUTTI_ERROR("comm", "{}: the MPI below refused the allgather of set-up", base_.name);
    fail(status.code(), "the MPI below refused the allgather of set-up");
    phase_ = Phase::done;
  }
  return {};
}

bool Setup::all_records_here() {
  for (; cursor_ < base_.nranks; ++cursor_)
    if (!has_come(&record(cursor_), wire_->copy.data(), wire_bytes(), offsetof(SetupRecord, check)))
      return false;
  std::atomic_thread_fence(std::memory_order_acquire);
  return true;
}

// What the records alone decide, for all ranks alike.
void Setup::compare_records() {
  const SetupRecord& first = record(0);
  for (int r = 0; r < base_.nranks; ++r) {
    const SetupRecord& each = record(r);
    any_device_possible_ |= each.device_possible != 0;
    if (each.version != first.version)
      fail(Code::bad_setting, text("rank {} runs another version of tutti than rank 0", r));
    else if (each.config_hash != first.config_hash)
      fail(Code::bad_setting,
           text("rank {} (host {}) has other TUTTI_ settings than rank 0", r, each.host));
    else if (each.status != 0)
      fail(static_cast<Code>(each.status), text("rank {} (host {}): {}", r, each.host,
                                                Status(static_cast<Code>(each.status)).text()));
    if (several_nodes()) all_rdma_ &= net_record(r).rdma != 0;
  }
}

void Setup::map_node() {
  if (!grant_.has_value()) return;
  members_.resize(here_.size());
  for (size_t i = 0; i < here_.size(); ++i) {
    const SetupRecord& each = record(here_[i]);
    shm::Member& member = members_[i];
    auto segment = shm::Segment::map(each.segment);
    if (!segment.ok()) {
      // Go on: whoever is reached must learn of the failure.
      fail(segment.status().code(),
           text("rank {} cannot map the segment of {}", base_.rank, rank_text(here_[i])));
      continue;
    }
    member.segment = *segment;
    member.slot = reinterpret_cast<shm::Slot*>(member.segment->at(each.slot_offset));
    if (each.lane.offset != 0) member.lane = member.segment->at(each.lane.offset);
  }
}

void Setup::open_transport() {
  if (!several_nodes()) return;
  std::vector<net::Member> ends;
  for (int r = 0; r < base_.nranks; ++r) {
    const NetRecord& each = net_record(r);
    ends.push_back({{each.address, each.address_bytes}, each.key});
  }
  auto network = process_.fabric().open(config_, several_threads_);
  Status status = network.status();
  Transport* made = nullptr;
  if (status.ok()) status = (*network)->open(base_.rank, base_.nranks, ends.data(), &made);
  transport_.reset(made);
  if (!status.ok())
    fail(status.code(),
         text("rank {} cannot open its network to the others: {}", base_.rank, status.text()));
}

// Addresses may lead nowhere: a firewall, or an interface of the same address on each host. That has to be
// known before calls depend on it.
void Setup::begin_meeting() {
  if (transport_ == nullptr) return;
  meeting_ends_ns_ = now_ns() + meeting_ns;
  const int n = base_.nranks;
  for (int distance = 1; distance < n; distance *= 2) {
    greetings_.push_back({.peer = (base_.rank + n - distance) % n});
    greetings_.push_back({.peer = (base_.rank + distance) % n});
  }
  for (size_t i = 0; i < greetings_.size(); ++i) {
    Greeting& each = greetings_[i];
    const uint64_t tag = i / 2;  // calls begin with another sequence number
    auto posted = i % 2 == 0 ? transport_->recv(each.peer, tag, &each.word, sizeof each.word)
                             : transport_->send(each.peer, tag, &each.word, sizeof each.word);
    each.finished = !posted.ok();
    if (posted.ok())
      each.handle = *posted;
    else
      miss(posted.status(), each.peer);
  }
}

void Setup::miss(Status why, int peer) {
  unreached_ = true;
  fail(why.code(), text("rank {} and {} do not reach each other over the network: {}", base_.rank,
                        rank_text(peer), why.text()));
}

bool Setup::met() {
  if (greetings_.empty()) return true;
  transport_->progress();
  const Greeting* missing = nullptr;
  for (Greeting& each : greetings_) {
    if (each.finished) continue;
    const Poll poll = transport_->test(each.handle);
    each.finished = poll.finished();
    if (!each.finished)
      missing = &each;
    else if (!poll.status().ok())
      miss(poll.status(), each.peer);
  }
  if (missing == nullptr && !unreached_ && transport_->quiet()) return true;
  if (!unreached_ && now_ns() > meeting_ends_ns_)
    miss(Code::timeout, (missing != nullptr ? *missing : greetings_.front()).peer);
  return unreached_;
}

void Setup::leave_meeting() {
  for (Greeting& each : greetings_)
    if (!each.finished) (void)transport_->cancel(each.handle);
  // What one communicator has not reached the next one need not try.
  if (unreached_) process_.fabric().give_up(code_);
  greetings_.clear();
}

void Setup::publish() {
  if (!members_.empty())
    members_[static_cast<size_t>(place_)].slot->ready.store(1 + static_cast<uint32_t>(code_),
                                                            std::memory_order_release);
}

// What all ranks of the node together conclude; nothing while somebody has not said. A rank that
// cannot map a peer fails itself and says so to all it can reach, so either all are well or all know.
std::optional<Code> Setup::node_verdict() {
  Code worst = code_;
  for (size_t i = 0; i < members_.size(); ++i) {
    const shm::Member& member = members_[i];
    if (member.slot == nullptr) continue;
    const uint32_t ready = member.slot->ready.load(std::memory_order_acquire);
    if (ready == 0) return std::nullopt;
    if (ready != 1 && worst == Code::ok) {
      worst = static_cast<Code>(ready - 1);
      reason_ =
          text("rank {} (host {}) could not reach every rank", here_[i], record(here_[i]).host);
    }
  }
  return worst;
}

void Setup::tell() {
  Verdict& own = wire_->verdict;
  std::memset(static_cast<void*>(&own), 0, sizeof own);
  own.code = static_cast<uint32_t>(code_);
  reason_.copy(own.reason, sizeof own.reason - 1);
  own.check = check_of(&own, sizeof own, offsetof(Verdict, check));
  wire_->verdicts.resize(static_cast<size_t>(base_.nranks));
  cursor_ = 0;
  Status status =
      base_.allgather_start(base_.handle, &own, wire_->verdicts.data(), sizeof own, &requests_[1]);
  if (status.ok()) return;
  TUTTI_ERROR("comm", "{}: the MPI below refused the second allgather of set-up", base_.name);
  abort(status);
}

bool Setup::all_verdicts_here() {
  for (; cursor_ < base_.nranks; ++cursor_) {
    Verdict each;
    if (!has_come(&wire_->verdicts[static_cast<size_t>(cursor_)], &each, sizeof each,
                  offsetof(Verdict, check)))
      return false;
  }
  // The first one's is the reason on all ranks.
  for (const Verdict& each : wire_->verdicts) {
    if (each.code == 0) continue;
    code_ = static_cast<Code>(each.code);
    reason_ = each.reason;
    break;
  }
  return true;
}

// What TUTTI_REQUIRE names and no communicator of several nodes has, agreed on all ranks; nullptr: nothing.
const char* Setup::missing_path() const {
  if (!several_nodes()) return nullptr;
  if (config_.require.sharp) return "sharp";
  // Device buffers are copied through the host by each rank.
  if (config_.require.gdr && any_device_possible_) return "gdr";
  if (config_.require.p2p && any_device_possible_) return "p2p";
  return nullptr;
}

void Setup::conclude() {
  phase_ = Phase::done;
  if (const char* missing = missing_path()) {
    transport_.reset();
    if (code_ == Code::ok) code_ = Code::no_device;
    lost_ = code_;
    reason_ =
        text("TUTTI_REQUIRE names {}, which communicators of several nodes do not use", missing);
    TUTTI_ERROR("comm", "{}: {}", base_.name, reason_);
    return;
  }
  if (code_ == Code::ok) {
    uint64_t lane_bytes = members_.empty() ? 0 : record(here_[0]).lane.bytes;
    for (int32_t r : here_) lane_bytes = std::min(lane_bytes, record(r).lane.bytes);
    if (!members_.empty()) group_ = std::make_unique<shm::NodeGroup>(place_, members_, lane_bytes);
    TUTTI_DEBUG("comm", "{}: {} ranks, {} on this node, lanes of {} bytes{}", base_.name,
                base_.nranks, here_.size(), lane_bytes,
                any_device_possible_ ? ", devices possible" : "");
    return;
  }
  transport_.reset();
  if (config_.require.native) {
    lost_ = code_;
    TUTTI_ERROR("comm", "{}: TUTTI_REQUIRE names native, but set-up failed: {}", base_.name,
                reason_);
    return;
  }
  // One rank says it loudly; the others need not repeat it.
  if (base_.rank == 0)
    TUTTI_WARN("comm", "{}: every collective goes to the MPI below: {}", base_.name, reason_);
  else
    TUTTI_INFO("comm", "{}: every collective goes to the MPI below: {}", base_.name, reason_);
}

Poll Setup::poll() {
  // Connections of those that still wait for this rank in their meeting.
  if (transport_ != nullptr) transport_->progress();
  switch (phase_) {
    case Phase::gather:
      if (!all_records_here()) return Poll::busy();
      compare_records();
      if (code_ != Code::ok) {
        conclude();
        return Poll::done();
      }
      phase_ = Phase::attach;
      [[fallthrough]];
    case Phase::attach:
      map_node();
      open_transport();
      begin_meeting();
      phase_ = Phase::meet;
      [[fallthrough]];
    case Phase::meet:
      if (!met()) return Poll::busy();
      leave_meeting();
      publish();
      phase_ = Phase::agree;
      [[fallthrough]];
    case Phase::agree: {
      std::optional<Code> all = node_verdict();
      if (!all.has_value()) return Poll::busy();
      code_ = *all;
      if (!several_nodes()) {
        conclude();
        return Poll::done();
      }
      phase_ = Phase::tell;  // which calls the base: not everybody may
      return Poll::busy();
    }
    case Phase::tell:
      phase_ = Phase::hear;
      tell();
      return Poll::busy();
    case Phase::hear:
      if (!all_verdicts_here()) return Poll::busy();
      conclude();
      return Poll::done();
    case Phase::done:
      break;
  }
  return lost_.ok() ? Poll::done() : Poll::failed(lost_);
}

// The end of a set-up that not all ranks may have seen alike: going below could hang, so calls end
// with the error.
void Setup::abort(Status why) {
  code_ = why.code();
  reason_ = text("set-up was ended: {}", why.text());
  lost_ = why;
  leave_meeting();
  transport_.reset();
  abandoned_ = true;
  phase_ = Phase::done;
}

void Setup::reap() {
  if (abandoned_) {
    // The base may write into it as long as the program runs.
    if (requests_[0] != nullptr || requests_[1] != nullptr)
      wire_ = std::make_unique<Wire>(*wire_.release());
    requests_[0] = requests_[1] = nullptr;
    return;
  }
  for (void*& request : requests_)
    while (request != nullptr)
      if (base_.allgather_test(request).finished()) request = nullptr;
}

void Setup::release() {
  reap();
  for (size_t i = 0; i < members_.size(); ++i) {
    if (static_cast<int>(i) == place_) continue;
    if (shm::Slot* slot = members_[i].slot; slot != nullptr)
      slot->released.fetch_add(1, std::memory_order_acq_rel);
  }
  // A slot that some peer could not map is never released by it and stays in use: 36 KiB, once.
  if (grant_.has_value())
    if (auto pool = process_.slots(); pool.ok())
      (*pool)->give_back(*grant_, static_cast<uint32_t>(here_.size()));
  grant_.reset();
  members_.clear();
  if (key_.has_value()) process_.fabric().give_key(*key_);
  key_.reset();
}

Status Setup::check_peers() {
  if (phase_ != Phase::agree) return {};
  for (size_t i = 0; i < members_.size(); ++i) {
    const shm::Member& member = members_[i];
    if (member.slot == nullptr || member.slot->ready.load(std::memory_order_relaxed) != 0) continue;
    if (!PeerProcess(record(here_[i]).segment.pid).alive()) return Code::peer_lost;
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
    case Phase::meet:
      return "set-up: first messages";
    case Phase::tell:
    case Phase::hear:
      return "set-up: gathering verdicts";
    case Phase::done:
      return "set-up: done";
  }
  return "";
}

std::string Setup::waiting_for() const {
  std::string missing;
  const auto add = [&](const std::string& who) { missing += (missing.empty() ? "" : ", ") + who; };
  if (phase_ == Phase::gather) {
    for (int r = 0; r < base_.nranks; ++r)
      if (record(r).check == 0) add(text("rank {}", r));
  } else if (phase_ == Phase::meet) {
    for (const Greeting& each : greetings_)
      if (!each.finished) add(rank_text(each.peer));
  } else if (phase_ == Phase::hear) {
    for (int r = 0; r < base_.nranks; ++r)
      if (wire_->verdicts[static_cast<size_t>(r)].check == 0) add(rank_text(r));
  } else {
    for (size_t i = 0; i < members_.size(); ++i)
      if (members_[i].slot != nullptr && members_[i].slot->ready.load() == 0)
        add(rank_text(here_[i]));
  }
  return missing;
}

}  // namespace tutti
