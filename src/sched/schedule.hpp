// Schedule: all steps of one rank, and the builder that algorithms write them with.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "core/problem.hpp"
#include "sched/step.hpp"

namespace tutti {

// Contract of a group step: the members together perform collective `coll` on the ranges that their
// group steps name, atomically: no member's step finishes before every member's has started.
// Reductions take the parts in the order of `members`. Parts of reduce_scatter (`to`) and allgather
// (`from`) may differ in size, and `counts` tells all; they lie in the order of members, without
// gaps, in the whole.
struct Group {
  Coll coll = Coll::allreduce;
  Level level = Level::node;
  int32_t root = 0;                   // index into members
  std::vector<int32_t> members;       // ranks, in the order of their parts
  std::vector<uint64_t> counts = {};  // elements of each part, where they may differ; else empty
  // What the step takes while it runs; the engine budgets them (DESIGN section 4).
  uint32_t ctas = 0;
  uint64_t lane_bytes = 0;
  friend bool operator==(const Group&, const Group&) = default;
};

// Tags of a schedule are below this, so that a transport can pack them beside rank and call number.
inline constexpr uint32_t tag_limit = 1u << 20;

// When the call is in place, no step names Space::input: what the call reads lies in the output,
// where sched/contract.hpp says.
struct Schedule {
  int32_t rank = 0;
  int32_t nranks = 1;
  uint64_t input_count = 0;  // elements
  uint64_t output_count = 0;
  uint64_t scratch_count = 0;
  uint64_t wide_count = 0;
  std::vector<Step> steps;
  std::vector<uint32_t> after;
  std::vector<Group> groups;

  std::span<const uint32_t> after_of(const Step& step) const {
    return std::span(after).subspan(step.after_begin, step.after_count);
  }
};

// Appends steps; each call returns the step's number, to be named in later `after` lists. Numbers
// only grow, so a schedule cannot have a cycle. Zero-length messages are legal; zero-length copies
// (but joins) and reductions are dropped and return `none`; `none` in an `after` list is ignored.
class ScheduleBuilder {
 public:
  using Id = uint32_t;
  static constexpr Id none = ~Id{0};

  ScheduleBuilder(Schedule& schedule, int rank, int nranks);

  Id send(int peer, Ref from, std::span<const Id> after, uint32_t tag = 0);
  Id recv(int peer, Ref to, std::span<const Id> after, uint32_t tag = 0);
  Id copy(Ref from, Ref to, std::span<const Id> after);
  // to = op(lower, higher): `lower` holds the part of the lower ranks.
  Id reduce(Ref lower, Ref higher, Ref to, std::span<const Id> after);
  // Equal (group, tag) on all members is one collective.
  Id group(Group group, Ref from, Ref to, std::span<const Id> after, uint32_t tag = 0);

  Id send(int peer, Ref from, std::initializer_list<Id> after, uint32_t tag = 0);
  Id recv(int peer, Ref to, std::initializer_list<Id> after, uint32_t tag = 0);
  Id copy(Ref from, Ref to, std::initializer_list<Id> after);
  Id reduce(Ref lower, Ref higher, Ref to, std::initializer_list<Id> after);

  // A step of another schedule, whose groups these are, with other ranges and predecessors.
  Id repeat(const Step& step, std::span<const Group> groups, Ref from, Ref with, Ref to,
            std::span<const Id> after);

  // One step after which all of these have finished, so that many steps need not name them all.
  // `none` if there is nothing to wait for.
  Id join(std::span<const Id> after);

  // Reserves elements of scratch and returns the whole range.
  Ref scratch(uint64_t count);

  const Schedule& schedule() const { return schedule_; }

 private:
  Id push(Step step, std::span<const Id> after);
  Schedule& schedule_;
};

}  // namespace tutti
