// Recursive doubling scan and exscan: at step k every rank sends the reduction of the 2^k ranks up
// to itself to rank + 2^k. Steps ceil(log2 P) for any P; bytes sent a rank n log2 P. Best for short
// messages. Source: W. D. Hillis, G. L. Steele, "Data parallel algorithms", CACM 29(12), 1986.
#include "coll/patterns.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::scan, Coll::exscan};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  const int nranks = place.nranks(), rank = place.rank;
  const uint64_t n = problem.agreed.count;
  const bool exclusive = problem.agreed.coll == Coll::exscan;
  const Ref own = own_vector(problem.local.in_place, n), result = output_ref(0, n);
  const bool in_place = own == result;
  if (rank == 0 && !exclusive && !in_place) builder.copy(own, result, {});
  // `mine`: ranks rank - 2^k + 1 .. rank. `below`: the same without this rank (exscan).
  Ref mine = own;
  const Ref work = exclusive ? builder.scratch(rank > 0 ? n : 0) : result;
  const Ref below = exclusive ? builder.scratch(rank > 0 ? n : 0) : Ref{};
  Id ready = no_step, below_ready = no_step;
  bool have_below = false;
  uint32_t tag = 0;
  for (int d = 1; d < nranks; d *= 2, ++tag) {
    Id sent = no_step;
    if (rank + d < nranks) sent = builder.send(rank + d, mine, {ready}, tag);
    if (rank - d < 0) continue;
    const Ref theirs = builder.scratch(n);
    const Id got = builder.recv(rank - d, theirs, {}, tag);
    if (exclusive) {
      below_ready = have_below ? builder.reduce(theirs, below, below, {got, below_ready})
                               : builder.copy(theirs, below, {got});
      have_below = true;
    }
    // Exscan needs its own part no more when it has nothing left to send.
    if (exclusive && rank + 2 * d >= nranks) {
      if (sent != no_step) ready = sent;
      continue;
    }
    ready = builder.reduce(theirs, mine, work, {got, ready, sent});
    mine = work;
  }
  // In place, the output holds the own part until the first reduction has read it.
  if (exclusive && rank > 0) builder.copy(below, result, {below_ready, ready});
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  Estimate e;
  e.near = {s.log_near, s.log_near * s.bytes};
  e.far = {s.log_far, (s.log_far + s.crossings()) * s.bytes, s.near};
  e.reduced = (s.log_near + s.log_far) * s.bytes;
  return e;
}

}  // namespace

extern const Algorithm scan_recursive_doubling{
    "recursive_doubling",
    "Every rank sends its reduction 1, 2, 4, ... ranks up; short messages.",
    collectives,
    {},
    applies,
    estimate,
    generate};

}  // namespace tutti
