#include "pml/loopback.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <list>
#include <mutex>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "base/log.hpp"

namespace tutti {

namespace {

constexpr uint64_t never = std::numeric_limits<uint64_t>::max();

// Guarded by the receiver's mailbox.
struct Message {
  int sender = 0;
  uint64_t tag = 0;
  const void* data = nullptr;  // the sender's buffer, or `copy`
  size_t bytes = 0;
  std::vector<char> copy;
  bool buffered = false;  // may be copied, so that the sender need not wait for the receiver
  bool too_long = false;  // planted fault
  bool matched = false;
  uint32_t delay = 0;  // looks of the receiver until it shows
  Status error;        // of an error message
};

using MessagePtr = std::shared_ptr<Message>;

struct Mailbox {
  std::mutex mutex;
  std::list<MessagePtr> messages;               // in the order they were sent
  std::vector<size_t> buffered_bytes;           // by sender
  std::vector<uint64_t> arrivals;               // by sender
  std::set<std::pair<int, uint64_t>> too_long;  // (sender, nth message)

  void remove(const MessagePtr& message) {
    if (message->buffered) buffered_bytes[static_cast<size_t>(message->sender)] -= message->bytes;
    messages.remove(message);
  }
};

}  // namespace

struct Loopback::World {
  World(int ranks, LoopbackOptions world_options)
      : nranks(ranks),
        options(world_options),
        mailboxes(static_cast<size_t>(ranks)),
        lost(static_cast<size_t>(ranks)),
        death_at(static_cast<size_t>(ranks)) {
    for (Mailbox& mailbox : mailboxes) {
      mailbox.buffered_bytes.assign(static_cast<size_t>(ranks), 0);
      mailbox.arrivals.assign(static_cast<size_t>(ranks), 0);
    }
    for (auto& nth : death_at) nth = never;
  }

  const int nranks;
  const LoopbackOptions options;
  std::vector<Mailbox> mailboxes;
  std::vector<std::atomic<bool>> lost;
  std::vector<std::atomic<uint64_t>> death_at;
  std::vector<std::unique_ptr<Endpoint>> endpoints;
};

class Loopback::Endpoint final : public Transport {
 public:
  Endpoint(World& world, int rank)
      : world_(world),
        rank_(rank),
        random_(world.options.seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(rank)) {}

  int rank() const override { return rank_; }
  int nranks() const override { return world_.nranks; }
  Result<Handle> send(int peer, uint64_t tag, const void* data, size_t bytes) override;
  Result<Handle> recv(int peer, uint64_t tag, void* data, size_t bytes) override;
  void send_error(int peer, uint64_t tag, Status why) override;
  Poll test(Handle handle) override;
  void progress() override;
  bool cancel(Handle handle) override;

 private:
  struct Slot {
    bool used = false;
    bool receives = false;
    uint32_t generation = 0;
    int peer = 0;
    uint32_t delay = 0;  // looks of the owner until the end shows
    MessagePtr message;  // a send's
    // A receive's:
    uint64_t tag = 0;
    uint64_t order = 0;
    void* data = nullptr;
    size_t bytes = 0;
    bool matched = false;
    Status status;
  };

  bool lost(int rank) const { return world_.lost[static_cast<size_t>(rank)].load(); }
  Mailbox& mailbox(int rank) { return world_.mailboxes[static_cast<size_t>(rank)]; }
  uint32_t random_delay() {
    const uint32_t limit = world_.options.max_delay;
    return limit == 0 ? 0 : static_cast<uint32_t>(random_() % (limit + 1));
  }
  void check_tag(uint64_t tag) const;
  Handle take_slot(Slot slot);
  Slot& slot_of(Handle handle);
  void free_slot(Slot& slot);
  Slot* find_receive(const Message& message);
  Poll test_send(Slot& slot);
  static void receive(Slot& slot, const Message& message);

  World& world_;
  const int rank_;
  std::mt19937_64 random_;
  uint64_t sends_ = 0;
  uint64_t receives_ = 0;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
};

namespace {

// A broken contract of the caller is a bug that a test must not survive.
[[noreturn]] void broken(int rank, const char* what, uint64_t value) {
  log::print(log::Level::error, "loopback", "rank {}: {}: {:#x}", rank, what, value);
  std::abort();
}

}  // namespace

void Loopback::Endpoint::check_tag(uint64_t tag) const {
  if (tag >> tag_bits != 0) broken(rank_, "tag is too large", tag);
}

Transport::Handle Loopback::Endpoint::take_slot(Slot slot) {
  uint32_t index = static_cast<uint32_t>(slots_.size());
  if (free_.empty()) {
    slots_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  slot.used = true;
  slot.generation = slots_[index].generation + 1;
  slot.delay = random_delay();
  slots_[index] = std::move(slot);
  return Handle{slots_[index].generation} << 32 | index;
}

Loopback::Endpoint::Slot& Loopback::Endpoint::slot_of(Handle handle) {
  const uint64_t index = handle & 0xffffffffu;
  if (index >= slots_.size() || !slots_[index].used || slots_[index].generation != handle >> 32)
    broken(rank_, "handle names no transfer in flight", handle);
  return slots_[index];
}

void Loopback::Endpoint::free_slot(Slot& slot) {
  slot.used = false;
  slot.message.reset();
  free_.push_back(static_cast<uint32_t>(&slot - slots_.data()));
}

Result<Transport::Handle> Loopback::Endpoint::send(int peer, uint64_t tag, const void* data,
                                                   size_t bytes) {
  check_tag(tag);
  const size_t self = static_cast<size_t>(rank_);
  if (sends_++ == world_.death_at[self].load()) world_.lost[self].store(true);
  if (lost(rank_) || lost(peer)) return Code::peer_lost;
  auto message = std::make_shared<Message>();
  message->sender = rank_;
  message->tag = tag;
  message->data = data;
  message->bytes = bytes;
  message->delay = random_delay();
  {
    Mailbox& box = mailbox(peer);
    std::lock_guard lock(box.mutex);
    size_t& buffered_bytes = box.buffered_bytes[self];
    message->buffered = bytes <= world_.options.eager_bytes &&
                        buffered_bytes + bytes <= world_.options.eager_total_bytes;
    if (message->buffered) buffered_bytes += bytes;
    message->too_long = box.too_long.contains({rank_, box.arrivals[self]++});
    box.messages.push_back(message);
  }
  Slot slot;
  slot.peer = peer;
  slot.message = std::move(message);
  return take_slot(std::move(slot));
}

void Loopback::Endpoint::send_error(int peer, uint64_t tag, Status why) {
  check_tag(tag);
  if (lost(rank_) || lost(peer)) return;
  auto message = std::make_shared<Message>();
  message->sender = rank_;
  message->tag = tag;
  message->delay = random_delay();
  message->error = why;
  Mailbox& box = mailbox(peer);
  std::lock_guard lock(box.mutex);
  box.messages.push_back(std::move(message));
}

Result<Transport::Handle> Loopback::Endpoint::recv(int peer, uint64_t tag, void* data,
                                                   size_t bytes) {
  check_tag(tag);
  if (lost(rank_)) return Code::peer_lost;
  // Whoever reads before test() has said finished shall not find what was there before.
  if (bytes != 0) std::memset(data, static_cast<int>(random_() & 0xff), bytes);
  Slot slot;
  slot.receives = true;
  slot.peer = peer;
  slot.tag = tag;
  slot.order = receives_++;
  slot.data = data;
  slot.bytes = bytes;
  return take_slot(std::move(slot));
}

// The first posted receive that the message matches.
Loopback::Endpoint::Slot* Loopback::Endpoint::find_receive(const Message& message) {
  Slot* first = nullptr;
  for (Slot& slot : slots_) {
    if (!slot.used || !slot.receives || slot.matched || slot.peer != message.sender ||
        slot.tag != message.tag)
      continue;
    if (first == nullptr || slot.order < first->order) first = &slot;
  }
  return first;
}

void Loopback::Endpoint::receive(Slot& slot, const Message& message) {
  slot.matched = true;
  slot.status = message.error;
  if (!message.error.ok()) return;
  if (message.too_long || message.bytes > slot.bytes) {
    slot.status = Code::truncated;
  } else if (message.bytes != 0) {
    std::memcpy(slot.data, message.data, message.bytes);
  }
}

void Loopback::Endpoint::progress() {
  Mailbox& box = mailbox(rank_);
  std::lock_guard lock(box.mutex);
  std::vector<std::pair<int, uint64_t>> held;  // (sender, tag) with an earlier message still there
  for (auto next = box.messages.begin(); next != box.messages.end();) {
    const MessagePtr message = *next++;
    const std::pair<int, uint64_t> key(message->sender, message->tag);
    bool overtakes = false;
    for (const auto& other : held) overtakes |= other == key;
    const bool shows = message->delay == 0 || --message->delay == 0;
    Slot* slot = shows && !overtakes ? find_receive(*message) : nullptr;
    if (slot == nullptr) {
      held.push_back(key);
      continue;
    }
    receive(*slot, *message);
    message->matched = true;
    box.remove(message);
  }
}

Poll Loopback::Endpoint::test_send(Slot& slot) {
  Message& message = *slot.message;
  Mailbox& box = mailbox(slot.peer);
  std::lock_guard lock(box.mutex);
  if (message.matched) return Poll::done();
  if (lost(slot.peer) || lost(rank_)) {
    box.remove(slot.message);
    return Poll::failed(Code::peer_lost);
  }
  if (!message.buffered) return Poll::busy();
  // As late as allowed: until now the buffer was the transport's.
  const char* data = static_cast<const char*>(message.data);
  if (message.bytes != 0) message.copy.assign(data, data + message.bytes);
  message.data = message.copy.data();
  return Poll::done();
}

Poll Loopback::Endpoint::test(Handle handle) {
  Slot& slot = slot_of(handle);
  const bool peer_gone = lost(slot.peer) || lost(rank_);
  if (slot.delay > 0 && !peer_gone) {
    --slot.delay;
    return Poll::busy();
  }
  Poll poll = Poll::busy();
  if (!slot.receives) {
    poll = test_send(slot);
  } else if (slot.matched) {
    poll = slot.status.ok() ? Poll::done() : Poll::failed(slot.status);
  } else if (peer_gone) {
    poll = Poll::failed(Code::peer_lost);
  }
  if (poll.finished()) free_slot(slot);
  return poll;
}

bool Loopback::Endpoint::cancel(Handle handle) {
  Slot& slot = slot_of(handle);
  bool withdrawn = slot.receives && !slot.matched;
  if (!slot.receives) {
    Mailbox& box = mailbox(slot.peer);
    std::lock_guard lock(box.mutex);
    withdrawn = !slot.message->matched;
    if (withdrawn) box.remove(slot.message);
  }
  free_slot(slot);
  return withdrawn;
}

Loopback::Loopback(int nranks, LoopbackOptions options)
    : world_(std::make_unique<World>(nranks, options)) {
  for (int rank = 0; rank < nranks; ++rank)
    world_->endpoints.push_back(std::make_unique<Endpoint>(*world_, rank));
}

Loopback::~Loopback() = default;

Transport& Loopback::transport(int rank) {
  return *world_->endpoints[static_cast<size_t>(rank)];
}

void Loopback::plant_death(int rank, uint64_t nth_send) {
  world_->death_at[static_cast<size_t>(rank)].store(nth_send);
}

void Loopback::plant_truncation(int from, int to, uint64_t nth_message) {
  Mailbox& box = world_->mailboxes[static_cast<size_t>(to)];
  std::lock_guard lock(box.mutex);
  box.too_long.insert({from, nth_message});
}

size_t Loopback::unmatched() const {
  size_t count = 0;
  for (Mailbox& box : world_->mailboxes) {
    std::lock_guard lock(box.mutex);
    count += box.messages.size();
  }
  return count;
}

}  // namespace tutti
