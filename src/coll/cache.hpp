// Cache of schedules by the signature of a call: programs repeat their collectives.
//
// One cache a communicator: topology and rank are not in the signature. A signature is compared whole, not
// by its hash: a collision would be a wrong result. Bounded in bytes; the schedule not used for longest
// goes first. Schedules are shared, so one that is running outlives its place here. One thread at a time.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "coll/registry.hpp"

namespace tutti {

class ScheduleCache {
 public:
  explicit ScheduleCache(size_t most_bytes) : most_bytes_(most_bytes) {}
  ScheduleCache(const ScheduleCache&) = delete;
  ScheduleCache& operator=(const ScheduleCache&) = delete;

  // The schedule of this call, generated if it is not here. One that is larger than the whole cache is
  // made and not kept.
  Result<std::shared_ptr<const Schedule>> get(const Algorithm& algorithm, const Problem& problem,
                                              const Place& place);

  size_t bytes() const { return bytes_; }
  size_t size() const { return entries_.size(); }
  uint64_t hits() const { return hits_; }
  uint64_t misses() const { return misses_; }

 private:
  using Signature = std::vector<uint64_t>;
  struct Entry {
    Signature signature;
    std::shared_ptr<const Schedule> schedule;
    size_t bytes;
  };
  using Entries = std::list<Entry>;
  struct HashOf {
    size_t operator()(const Signature* signature) const;
  };
  struct SameAs {
    bool operator()(const Signature* a, const Signature* b) const { return *a == *b; }
  };

  void sign(const Algorithm& algorithm, const Problem& problem, const Params& params);
  void drop_last();

  size_t most_bytes_;
  size_t bytes_ = 0;
  uint64_t hits_ = 0, misses_ = 0;
  Entries entries_;  // latest used first
  std::unordered_map<const Signature*, Entries::iterator, HashOf, SameAs> known_;
  Signature wanted_;  // kept, so that a hit allocates nothing
};

// Memory that a schedule holds.
size_t bytes_of(const Schedule& schedule);

}  // namespace tutti
