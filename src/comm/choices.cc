#include "comm/choices.hpp"

#include <algorithm>
#include <memory>

#include "base/log.hpp"
#include "comm/node_call.hpp"

namespace tutti {

Choices::~Choices() {
  for (auto& bucket : buckets_)
    for (Entry* entry = bucket.load(); entry != nullptr;) {
      const std::unique_ptr<Entry> gone(entry);
      entry = entry->next;
    }
}

bool Choices::same(const Entry& entry, const Agreed& agreed) {
  const Agreed& known = entry.agreed;
  return known.coll == agreed.coll && known.op == agreed.op && known.dtype == agreed.dtype &&
         known.commutative == agreed.commutative && known.count == agreed.count &&
         known.root == agreed.root && std::ranges::equal(entry.counts, agreed.counts);
}

Choice Choices::get(const Agreed& agreed, const Topology& topology, const Tuning& tuning) {
  auto& bucket = buckets_[signature(agreed) >> 32 & 255];
  Entry* first = bucket.load(std::memory_order_acquire);
  for (const Entry* entry = first; entry != nullptr; entry = entry->next)
    if (same(*entry, agreed)) return entry->choice;
  const Choice choice = select(agreed, topology, tuning);
  TUTTI_DEBUG("comm", "{} of {} {}, {} ranks on {} nodes: {} {}", name(agreed.coll), agreed.count,
              name(agreed.dtype), topology.nranks, topology.node_count(),
              choice.algorithm != nullptr ? choice.algorithm->scheme : "the MPI below",
              choice.algorithm != nullptr ? describe(*choice.algorithm, choice.params) : "");
  if (size_.fetch_add(1, std::memory_order_relaxed) >= limit) {
    size_.store(limit, std::memory_order_relaxed);
    return choice;
  }
  auto* entry = new Entry{agreed, {agreed.counts.begin(), agreed.counts.end()}, choice, first};
  entry->agreed.counts = {};
  while (!bucket.compare_exchange_weak(entry->next, entry, std::memory_order_acq_rel)) {
  }
  return choice;
}

}  // namespace tutti
