#include "coll/cache.hpp"

namespace tutti {

size_t bytes_of(const Schedule& schedule) {
  size_t bytes = sizeof schedule + schedule.steps.capacity() * sizeof(Step) +
                 schedule.after.capacity() * sizeof(uint32_t) +
                 schedule.groups.capacity() * sizeof(Group);
  for (const Group& group : schedule.groups)
    bytes +=
        group.members.capacity() * sizeof(int32_t) + group.counts.capacity() * sizeof(uint64_t);
  return bytes;
}

size_t ScheduleCache::HashOf::operator()(const Signature* signature) const {
  uint64_t hash = 0xcbf29ce484222325;
  for (uint64_t word : *signature) {
    hash = (hash ^ word) * 0x100000001b3;
    hash ^= hash >> 29;
  }
  return hash;
}

void ScheduleCache::sign(const Algorithm& algorithm, const Problem& problem, const Params& params) {
  const Agreed& agreed = problem.agreed;
  const Local& local = problem.local;
  wanted_.clear();
  wanted_.push_back(reinterpret_cast<uintptr_t>(&algorithm));
  wanted_.insert(wanted_.end(), params.values.begin(), params.values.end());
  const bool ordered = agreed.op == Op::user && !agreed.commutative;
  wanted_.push_back(static_cast<uint64_t>(agreed.coll) | (ordered ? 256 : 0) |
                    (local.in_place ? 512 : 0) | (agreed.wide ? 1024 : 0) |
                    (local.send_on_device ? 2048 : 0) | (local.recv_on_device ? 4096 : 0) |
                    static_cast<uint64_t>(info(agreed.dtype).extent) << 16);
  wanted_.push_back(agreed.count);
  wanted_.push_back(static_cast<uint64_t>(agreed.root));
  wanted_.push_back(local.count);
  // Lengths set the lists apart.
  for (std::span<const uint64_t> list : {agreed.counts, local.send_displs, local.recv_displs,
                                         local.send_counts, local.recv_counts}) {
    wanted_.push_back(list.size());
    wanted_.insert(wanted_.end(), list.begin(), list.end());
  }
}

void ScheduleCache::drop_last() {
  Entry& last = entries_.back();
  bytes_ -= last.bytes;
  known_.erase(&last.signature);
  entries_.pop_back();
}

Result<std::shared_ptr<const Schedule>> ScheduleCache::get(const Algorithm& algorithm,
                                                           const Problem& problem,
                                                           const Place& place) {
  sign(algorithm, problem, place.params);
  if (auto found = known_.find(&wanted_); found != known_.end()) {
    ++hits_;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->schedule;
  }
  ++misses_;
  auto schedule = std::make_shared<Schedule>();
  TUTTI_TRY(generate(algorithm, problem, place, *schedule));
  schedule->steps.shrink_to_fit();
  schedule->after.shrink_to_fit();
  std::shared_ptr<const Schedule> shared = std::move(schedule);
  const size_t bytes = bytes_of(*shared) + sizeof(Entry) + wanted_.size() * sizeof(uint64_t);
  if (bytes > most_bytes_) return shared;
  while (bytes_ + bytes > most_bytes_) drop_last();
  entries_.push_front({wanted_, shared, bytes});
  known_.emplace(&entries_.front().signature, entries_.begin());
  bytes_ += bytes;
  return shared;
}

}  // namespace tutti
