#include "gpu/linger.hpp"

#include <algorithm>

namespace tutti::gpu {

std::optional<uint32_t> Linger::add(const LingerSlot& slot) {
  if (!line_ || forbidden_.load(std::memory_order_relaxed)) return std::nullopt;
  const std::lock_guard lock(slots_mutex_);
  for (uint32_t i = 0; i < linger_slots; ++i) {
    if (taken_[i]) continue;
    taken_[i] = true;
    slots_[i] = slot;
    slots_version_.fetch_add(1, std::memory_order_release);
    return i;
  }
  return std::nullopt;
}

void Linger::remove(uint32_t slot) {
  {
    const std::lock_guard lock(slots_mutex_);
    taken_[slot] = false;
    slots_[slot] = {};
    slots_version_.fetch_add(1, std::memory_order_release);
  }
  ask_to_leave();
}

// The kernel waits for the next number, or, when it was told to leave, may have left before it heard.
bool Linger::gone() const {
  const uint64_t left = __atomic_load_n(&line_->left, __ATOMIC_ACQUIRE);
  return left == next_ring(ring_) || (leaving_ && left == ring_);
}

// Whether the running kernel knows the groups of today, has code for so many ranks, and the CTAs.
bool Linger::serves(const LingerCommand& command, uint32_t nranks) const {
  return !leaving_ && nranks <= launched_ranks_ && ctas_of(command) <= launched_ctas_ &&
         launched_version_ == slots_version_.load(std::memory_order_acquire);
}

Linger::Way Linger::begin(const void* group, const LingerCommand& command, uint32_t nranks,
                          uint64_t window_ns, uint64_t now_ns) {
  if (forbidden_.load(std::memory_order_relaxed)) return Way::alone;
  const void* nobody = nullptr;
  if (!owner_.compare_exchange_strong(nobody, group, std::memory_order_acq_rel,
                                      std::memory_order_relaxed))
    return Way::alone;
  if (running_ && gone()) {
    running_ = false;
    leaving_ ? policy_.dismissed() : policy_.left();
  }
  const bool stay = policy_.call(now_ns, window_ns);
  most_ctas_ = std::max(most_ctas_, ctas_of(command));
  if (running_ ? !serves(command, nranks) : !stay) {
    // Smaller calls would keep it for ever.
    if (running_ && !leaving_ && ctas_of(command) > launched_ctas_) ring_leave();
    end();
    return Way::alone;
  }
  command_ = command;
  nranks_ = nranks;
  window_ns_ = window_ns;
  ring_ = next_ring(ring_);
  if (!running_) return Way::launch;
  policy_.rung(ctas_of(command));
  counts_.rung.fetch_add(1, std::memory_order_relaxed);
  ring(command);
  return Way::rung;
}

void Linger::ring(const LingerCommand& command) {
  // Each word proves itself, so their order is free; what the program wrote before the call must be
  // seen by whoever sees a word.
  for (uint32_t i = 0; i < command_words; ++i)
    __atomic_store_n(&line_->bell[i], command.word[i] | static_cast<uint64_t>(ring_) << 32,
                     __ATOMIC_RELEASE);
}

bool Linger::missed() {
  if (!has_left()) return false;
  counts_.missed.fetch_add(1, std::memory_order_relaxed);
  policy_.left();
  running_ = false;
  return true;
}

LingerArgs Linger::launch_args() {
  LingerArgs args{};
  {
    const std::lock_guard lock(slots_mutex_);
    for (uint32_t i = 0; i < linger_slots; ++i) args.slot[i] = slots_[i];
    launched_version_ = slots_version_.load(std::memory_order_relaxed);
  }
  args.first = command_;
  args.ring = ring_;
  args.window_ns = window_ns_;
  args.bell = line_->bell;
  args.left = &line_->left;
  args.relay = relay_;
  // The last kernel has written its last: no old number may meet a wrapped one.
  __atomic_store_n(&line_->left, 0, __ATOMIC_RELEASE);
  launched_ranks_ = linger_capacity(nranks_);
  // As many as the calls since the last launch wanted, and half of what it had at least: a program that
  // mixes sizes has them at once, and one that goes over to small calls soon holds few.
  launched_ctas_ = std::max(most_ctas_, ctas_of(command_));
  most_ctas_ = launched_ctas_ / 2;
  running_ = true;
  leaving_ = false;
  counts_.launched.fetch_add(1, std::memory_order_relaxed);
  return args;
}

void Linger::end() {
  owner_.store(nullptr, std::memory_order_release);
}

void Linger::ask_to_leave() {
  const void* nobody = nullptr;
  if (!owner_.compare_exchange_strong(nobody, this, std::memory_order_acq_rel,
                                      std::memory_order_relaxed))
    return;  // busy: it leaves when its window is over
  if (running_ && !leaving_ && !gone()) ring_leave();
  end();
}

void Linger::ring_leave() {
  ring_ = next_ring(ring_);
  leaving_ = true;
  ring(leave_command());
}

std::optional<LingerCommand> linger_command(const Call& call, const Plan& plan,
                                            const PlanSpace& space, const KernelArgs& args,
                                            uint32_t slot) {
  const Coll coll = call.agreed.coll;
  if (coll != Coll::allreduce && coll != Coll::reduce_scatter_block && coll != Coll::allgather)
    return std::nullopt;
  if (!plan.ll || call.send_kind != Kind::device || call.recv_kind != Kind::device)
    return std::nullopt;
  const LingerRow* row = nullptr;
  for (const LingerRow& candidate : space.tuning->linger_rows)
    if (space.nranks <= candidate.up_to_ranks) {
      row = &candidate;
      break;
    }
  if (row == nullptr || plan.bytes > row->bytes) return std::nullopt;
  const bool wide = coll != Coll::allgather && info(call.agreed.dtype).bytes == 8;
  LingerShape shape = LingerShape::allgather;
  if (coll == Coll::allreduce) shape = wide ? LingerShape::allreduce_wide : LingerShape::allreduce;
  if (coll == Coll::reduce_scatter_block)
    shape = wide ? LingerShape::reduce_scatter_wide : LingerShape::reduce_scatter;
  const uint64_t bytes_of_cta = uint64_t{row->workers} * linger_depth(space.nranks) * ll_data_bytes;
  const uint64_t ctas = (plan.bytes + bytes_of_cta - 1) / bytes_of_cta;
  const uint32_t most_ctas = std::min(row->most_ctas, space.cta_budget);
  return make_command(args, shape, slot,
                      static_cast<uint32_t>(std::min<uint64_t>(ctas, most_ctas)));
}

}  // namespace tutti::gpu
