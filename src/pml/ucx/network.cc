#include "pml/ucx/network.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <set>

#include "base/text.hpp"
#include "pml/ucx/tag.hpp"
#include "pml/ucx/transport.hpp"

namespace tutti::ucx {

namespace {

constexpr size_t slots_a_chunk = 64;
constexpr size_t line_bytes = 64;
// How long an error path waits for UCX to let go of a buffer. A healthy peer answers within a few
// round trips; a wait inside a failing call must not add up to much.
constexpr uint64_t withdraw_ns = 200'000'000;
// Completions are taken in groups of up to 16; a few turns empty the queues of a busy worker, and
// the bound lets the caller look at its own steps.
constexpr int turns_a_progress = 8;

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

size_t round_up(size_t value, size_t to) {
  return (value + to - 1) / to * to;
}

// In front of the worker's address. The library's version decides what the address means.
struct AddressHead {
  uint32_t magic = 0x75637801;  // changes with this struct
  uint16_t ucx_major = 0;
  uint16_t ucx_minor = 0;
  int32_t pid = 0;
  char host[44] = {};
};
static_assert(sizeof(AddressHead) == 56);

AddressHead own_head() {
  AddressHead head;
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  head.ucx_major = static_cast<uint16_t>(major);
  head.ucx_minor = static_cast<uint16_t>(minor);
  head.pid = getpid();
  gethostname(head.host, sizeof head.host - 1);
  return head;
}

Code code_of_status(ucs_status_t status) {
  switch (status) {
    case UCS_OK:
      return Code::ok;
    case UCS_ERR_MESSAGE_TRUNCATED:
      return Code::truncated;
    case UCS_ERR_NO_MEMORY:
      return Code::no_memory;
    case UCS_ERR_NO_RESOURCE:
    case UCS_ERR_EXCEEDS_LIMIT:
      return Code::no_resource;
    default:
      return Code::peer_lost;
  }
}

Poll outcome(const Slot& slot) {
  Code code = code_of_status(slot.status);
  // An error in place of the message.
  if (code == Code::ok && slot.receives) code = code_of(slot.info.sender_tag);
  return code == Code::ok ? Poll::done() : Poll::failed(code);
}

}  // namespace

class UcxNetwork::Lock {
 public:
  explicit Lock(UcxNetwork& network) : network_(network.locks_ ? &network : nullptr) {
    if (network_) network_->mutex_.lock();
  }
  ~Lock() {
    if (network_) network_->mutex_.unlock();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  UcxNetwork* network_;
};

Status UcxNetwork::open_worker() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  // Several threads take turns under this object's lock.
  params.thread_mode = locks_ ? UCS_THREAD_MODE_SERIALIZED : UCS_THREAD_MODE_SINGLE;
  if (ucs_status_t status = ucp_worker_create(context_, &params, &worker_); status != UCS_OK) {
    say(Level::warn, text("UCX refuses a worker: {}", ucs_status_string(status)));
    worker_ = nullptr;
    return code_of_status(status) == Code::no_memory ? Code::no_memory : Code::no_resource;
  }
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE;
  ucp_context_query(context_, &attributes);
  request_bytes_ = attributes.request_size;
  TUTTI_TRY(make_address());
  return grow_slots();
}

Status UcxNetwork::make_address() {
  ucp_address_t* worker_address = nullptr;
  size_t bytes = 0;
  if (ucs_status_t status = ucp_worker_get_address(worker_, &worker_address, &bytes);
      status != UCS_OK) {
    say(Level::warn, text("UCX gives no address: {}", ucs_status_string(status)));
    return Code::no_resource;
  }
  const AddressHead head = own_head();
  address_.assign(reinterpret_cast<const char*>(&head), sizeof head);
  address_.append(reinterpret_cast<const char*>(worker_address), bytes);
  ucp_worker_release_address(worker_, worker_address);
  return {};
}

Result<Peer*> UcxNetwork::peer_of(const net::Address& address) {
  const std::string_view bytes(static_cast<const char*>(address.data), address.bytes);
  if (auto known = peers_.find(bytes); known != peers_.end()) return known->second.get();
  const AddressHead own = own_head();
  AddressHead head;
  if (bytes.size() <= sizeof head) return Code::bad_argument;
  std::memcpy(&head, bytes.data(), sizeof head);
  head.host[sizeof head.host - 1] = 0;
  if (head.magic != own.magic) {
    say(Level::warn, "a peer's address is of another build of the UCX module");
    return Code::unsupported;
  }
  if (head.ucx_major != own.ucx_major || head.ucx_minor != own.ucx_minor) {
    say(Level::warn,
        text("UCX {}.{} here, {}.{} in process {} on {}: versions must be equal", own.ucx_major,
             own.ucx_minor, head.ucx_major, head.ucx_minor, head.pid, head.host));
    return Code::unsupported;
  }
  auto peer = std::make_unique<Peer>();
  peer->network = this;
  peer->address = bytes.substr(sizeof head);
  peer->name = text("{}:{}", head.host, head.pid);
  return peers_.emplace(bytes, std::move(peer)).first->second.get();
}

Status UcxNetwork::open(int rank, int nranks, const net::Member* members, Transport** out) {
  if (nranks > net::max_ranks) return Code::unsupported;
  Lock lock(*this);
  std::vector<UcxTransport::End> ends;
  for (int i = 0; i < nranks; ++i) {
    if (members[i].key > net::max_key) return Code::unsupported;
    Result<Peer*> peer = peer_of(members[i].address);
    if (!peer.ok()) return peer.status();
    ends.push_back({*peer, members[i].key});
  }
  *out = new UcxTransport(*this, rank, std::move(ends));
  return {};
}

// With this error mode the data paths are as fast as without a handler, and the handler is called
// all the same; mode PEER would forbid zero-copy rendezvous on tcp and most verbs devices.
Status UcxNetwork::connect(Peer& peer) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peer.address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
  params.err_handler.cb = on_lost;
  params.err_handler.arg = &peer;
  if (ucs_status_t status = ucp_ep_create(worker_, &params, &peer.endpoint); status != UCS_OK) {
    peer.endpoint = nullptr;
    peer.lost.store(true);
    any_lost_.store(true);
    say(Level::warn, text("no connection to {}: {}", peer.name, ucs_status_string(status)));
    return Code::peer_lost;
  }
  return {};
}

void UcxNetwork::on_lost(void* argument, ucp_ep_h, ucs_status_t status) {
  Peer& peer = *static_cast<Peer*>(argument);
  if (peer.lost.exchange(true)) return;
  peer.network->any_lost_.store(true);
  // At the end a peer that is through with everything closes its side first.
  say(peer.network->ending_.load() ? Level::debug : Level::warn,
      text("connection to {} lost: {}", peer.name, ucs_status_string(status)));
}

Status UcxNetwork::grow_slots() {
  // UCX's part ends where the slot begins.
  const size_t front = round_up(request_bytes_, line_bytes);
  const size_t stride = round_up(front + sizeof(Slot), line_bytes);
  char* chunk = static_cast<char*>(std::aligned_alloc(line_bytes, stride * slots_a_chunk));
  if (chunk == nullptr) {
    say(Level::warn, text("out of memory for {} network requests", slots_a_chunk));
    return Code::no_memory;
  }
  std::memset(chunk, 0, stride * slots_a_chunk);
  chunks_.push_back(chunk);
  for (size_t i = 0; i < slots_a_chunk; ++i) {
    Slot* slot = new (chunk + i * stride + front) Slot;
    slot->network = this;
    give_slot(slot);
  }
  return {};
}

Result<Slot*> UcxNetwork::take_slot(Peer& peer, bool receives) {
  if (free_ == nullptr) {
    if (Status status = grow_slots(); !status.ok()) return status;
  }
  Slot* slot = free_;
  free_ = slot->next;
  slot->done.store(false, std::memory_order_relaxed);
  slot->receives = receives;
  slot->abandoned = false;
  slot->peer = &peer;
  slot->status = UCS_INPROGRESS;
  return slot;
}

void UcxNetwork::give_slot(Slot* slot) {
  slot->next = free_;
  free_ = slot;
}

void UcxNetwork::settle(Slot* slot, ucs_status_t status) {
  slot->status = status;
  slot->peer->slow = false;
  if (slot->abandoned) {
    slot->network->give_slot(slot);
  } else {
    slot->done.store(true, std::memory_order_release);
  }
}

void UcxNetwork::on_sent(void*, ucs_status_t status, void* slot) {
  settle(static_cast<Slot*>(slot), status);
}

void UcxNetwork::on_received(void*, ucs_status_t status, const ucp_tag_recv_info_t* info,
                             void* slot) {
  static_cast<Slot*>(slot)->info = *info;
  settle(static_cast<Slot*>(slot), status);
}

Result<Slot*> UcxNetwork::post_send(Peer& peer, uint64_t word, const void* data, size_t bytes) {
  if (peer.lost.load(std::memory_order_relaxed)) return Code::peer_lost;
  if (peer.endpoint == nullptr) TUTTI_TRY(connect(peer));
  Result<Slot*> slot = take_slot(peer, false);
  if (!slot.ok()) return slot;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK |
                       UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.request = *slot;
  param.cb.send = on_sent;
  param.user_data = *slot;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  ucs_status_ptr_t pointer = ucp_tag_send_nbx(peer.endpoint, data, bytes, word, &param);
  // Over at once, well or badly: then there is no callback.
  if (!UCS_PTR_IS_PTR(pointer)) settle(*slot, UCS_PTR_STATUS(pointer));
  return slot;
}

Result<Slot*> UcxNetwork::send(Peer& peer, uint64_t word, const void* data, size_t bytes) {
  Lock lock(*this);
  return post_send(peer, word, data, bytes);
}

void UcxNetwork::send_error(Peer& peer, uint64_t word) {
  Lock lock(*this);
  Result<Slot*> slot = post_send(peer, word, nullptr, 0);
  if (slot.ok()) abandon(*slot);
}

Result<Slot*> UcxNetwork::recv(Peer& peer, uint64_t word, void* data, size_t bytes) {
  Lock lock(*this);
  Result<Slot*> slot = take_slot(peer, true);
  if (!slot.ok()) return slot;
  ucp_request_param_t param{};
  // Always by the callback, which alone tells the sender's whole match word: UCX 1.13 does not fill
  // recv_info when a message that came before its receive ends it at once.
  param.op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK |
                       UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                       UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.request = *slot;
  param.cb.recv = on_received;
  param.user_data = *slot;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  ucs_status_ptr_t pointer = ucp_tag_recv_nbx(worker_, data, bytes, word, match_mask, &param);
  if (!UCS_PTR_IS_PTR(pointer)) {
    // Refused before it was posted; UCS_OK cannot come.
    give_slot(*slot);
    return code_of_status(UCS_PTR_STATUS(pointer));
  }
  return slot;
}

Poll UcxNetwork::test(Slot* slot) {
  if (!slot->done.load(std::memory_order_acquire)) {
    if (!slot->peer->lost.load(std::memory_order_relaxed)) return Poll::busy();
    cancel(slot);
    return Poll::failed(Code::peer_lost);
  }
  const Poll poll = outcome(*slot);
  Lock lock(*this);
  give_slot(slot);
  return poll;
}

// Nobody will ask for it any more: its memory comes back when UCX lets go of it.
void UcxNetwork::abandon(Slot* slot) {
  if (slot->done.load(std::memory_order_relaxed)) {
    give_slot(slot);
  } else {
    slot->abandoned = true;
  }
}

bool UcxNetwork::wait_for(const Slot& slot, uint64_t timeout_ns) {
  const uint64_t end = now_ns() + timeout_ns;
  do {
    while (ucp_worker_progress(worker_) != 0) {
    }
    if (slot.done.load(std::memory_order_relaxed)) return true;
  } while (now_ns() < end);
  return false;
}

// UCX can withdraw a receive that nothing has matched yet. A send it can only finish: a short one
// is gone already, a long one waits for the peer, who may never come.
bool UcxNetwork::cancel(Slot* slot) {
  Lock lock(*this);
  Peer& peer = *slot->peer;
  if (slot->receives) ucp_request_cancel(worker_, slot);
  const bool wait = !peer.slow && (slot->receives || !peer.lost.load());
  if (wait_for(*slot, wait ? withdraw_ns : 0)) {
    const bool withdrawn = slot->receives && slot->status == UCS_ERR_CANCELED;
    give_slot(slot);
    return withdrawn;
  }
  if (!peer.slow && !peer.lost.load())
    say(Level::warn,
        text("{} does not answer: a {} buffer of a call that ended in error may still "
             "be {} by it",
             peer.name, slot->receives ? "receive" : "send", slot->receives ? "written" : "read"));
  peer.slow = true;
  abandon(slot);
  return false;
}

void UcxNetwork::progress() {
  if (locks_ && !mutex_.try_lock()) return;  // somebody else is at it
  for (int turn = 0; turn < turns_a_progress && ucp_worker_progress(worker_) != 0; ++turn) {
  }
  if (locks_) mutex_.unlock();
}

bool UcxNetwork::quiet(void** flush) {
  // What is on its way to a peer that is lost never leaves.
  if (any_lost_.load(std::memory_order_relaxed)) return true;
  Lock lock(*this);
  if (*flush == nullptr) {
    ucp_request_param_t param{};
    void* request = ucp_worker_flush_nbx(worker_, &param);
    if (!UCS_PTR_IS_PTR(request)) return true;
    *flush = request;
  }
  if (ucp_request_check_status(*flush) == UCS_INPROGRESS) return false;
  ucp_request_free(*flush);
  *flush = nullptr;
  return true;
}

void UcxNetwork::drop_flush(void* flush) {
  if (flush == nullptr) return;
  Lock lock(*this);
  ucp_request_free(flush);  // UCX drops it when it is over
}

// Lines of ucp_ep_print_info such as "#   lane[0]:  2:tcp/eth0.0 md[1] ...": every version has it.
const char* UcxNetwork::describe() {
  Lock lock(*this);
  std::set<std::string> found;
  for (auto& [address, peer] : peers_) {
    if (peer->endpoint == nullptr || peer->lost.load()) continue;
    char* lines = nullptr;
    size_t bytes = 0;
    FILE* file = open_memstream(&lines, &bytes);
    if (file == nullptr) continue;
    ucp_ep_print_info(peer->endpoint, file);
    fclose(file);
    for (const char* lane = std::strstr(lines, "lane["); lane;
         lane = std::strstr(lane + 1, "lane[")) {
      const std::string_view line(lane, std::strcspn(lane, "\n"));
      const size_t slash = line.find('/');
      if (slash == line.npos) continue;
      const size_t begin = line.find_last_of(": ", slash) + 1;
      size_t end = std::min(line.find(' ', slash), line.size());
      if (size_t dot = line.rfind('.', end); dot != line.npos && dot > slash) end = dot;
      found.emplace(line.substr(begin, end - begin));
    }
    std::free(lines);
  }
  description_.clear();
  for (const std::string& each : found) description_ += (description_.empty() ? "" : ", ") + each;
  return description_.c_str();
}

Status UcxNetwork::flush(uint64_t timeout_ns) {
  Lock lock(*this);
  ending_.store(true);
  const uint64_t end = now_ns() + timeout_ns;
  ucp_request_param_t param{};
  void* request = ucp_worker_flush_nbx(worker_, &param);
  if (!UCS_PTR_IS_PTR(request)) return {};  // nothing under way, or only to peers that are lost
  ucs_status_t status = UCS_INPROGRESS;
  do {
    ucp_worker_progress(worker_);
    status = ucp_request_check_status(request);
  } while (status == UCS_INPROGRESS && now_ns() < end);
  ucp_request_free(request);  // UCX drops it when it is over
  if (status != UCS_INPROGRESS) return {};
  say(Level::warn,
      text("messages are still under way after {:.1f} s", static_cast<double>(timeout_ns) * 1e-9));
  return Code::timeout;
}

Status UcxNetwork::close(uint64_t timeout_ns) {
  Lock lock(*this);
  const uint64_t end = now_ns() + timeout_ns;
  std::vector<std::pair<Peer*, void*>> closing;
  for (auto& [address, peer] : peers_) {
    if (peer->endpoint == nullptr || peer->lost.load()) continue;
    ucp_request_param_t param{};  // flags 0: flush; mode NONE has no forced close
    void* request = ucp_ep_close_nbx(peer->endpoint, &param);
    peer->endpoint = nullptr;
    if (UCS_PTR_IS_PTR(request)) closing.emplace_back(peer.get(), request);
  }
  do {
    ucp_worker_progress(worker_);
    std::erase_if(closing, [](auto& each) {
      if (ucp_request_check_status(each.second) == UCS_INPROGRESS) return false;
      ucp_request_free(each.second);
      return true;
    });
  } while (!closing.empty() && now_ns() < end);
  if (closing.empty()) return {};
  say(Level::warn, text("{} connections do not close, the first to {}: UCX is left as it is",
                        closing.size(), closing.front().first->name));
  // Destroying the worker now could wait for ever or free what the network still reads.
  worker_ = nullptr;
  context_ = nullptr;
  chunks_.clear();
  return Code::timeout;
}

UcxNetwork::~UcxNetwork() {
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
  for (void* chunk : chunks_) std::free(chunk);
}

}  // namespace tutti::ucx
