// Bruck's alltoall: blocks travel in jumps of 1, 2, 4, ... ranks; at step k all blocks whose way
// has that jump share a message. Steps ceil(log2 P) for any P; bytes sent a rank (n/2) log2 P, and
// about two copies of all blocks a step. Best for very short blocks. Source: J. Bruck, C.-T. Ho, S.
// Kipnis, E. Upfal, D. Weathersby, "Efficient algorithms for all-to-all communications in multiport
// message-passing systems", IEEE TPDS 8(11), 1997.
#include "coll/patterns.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::alltoall};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  const int nranks = place.nranks(), rank = place.rank;
  const uint64_t n = problem.agreed.count;
  auto times = [&](int blocks) { return static_cast<uint64_t>(blocks) * n; };
  const Space source = problem.local.in_place ? Space::output : Space::input;
  // Block i of `work` has i ranks to go; at first it is the one for rank + i.
  const Ref work = builder.scratch(times(nranks));
  auto blocks = [&](int first, int count) { return slice(work, times(first), times(count)); };
  const int straight = nranks - rank;
  std::vector<Id> read = {
      builder.copy({source, times(rank), times(straight)}, blocks(0, straight), {}),
      builder.copy({source, 0, times(rank)}, blocks(straight, rank), {})};
  // Step that last wrote each block; a copy of a run waits for all of its blocks.
  std::vector<Id> written(static_cast<size_t>(nranks), read[0]);
  for (int i = straight; i < nranks; ++i) written[static_cast<size_t>(i)] = read[1];
  uint32_t tag = 0;
  for (int d = 1; d < nranks; d *= 2, ++tag) {
    int moving = 0;
    for (int i = d; i < nranks; i += 2 * d) moving += std::min(d, nranks - i);
    const Ref out = builder.scratch(times(moving)), in = builder.scratch(times(moving));
    std::vector<Id> packed;
    for (int i = d, at = 0; i < nranks; i += 2 * d) {
      const int run = std::min(d, nranks - i);
      packed.push_back(builder.copy(
          blocks(i, run), slice(out, times(at), times(run)),
          std::span<const Id>(written).subspan(static_cast<size_t>(i), static_cast<size_t>(run))));
      at += run;
    }
    builder.send(mod(rank + d, nranks), out, std::span<const Id>(packed), tag);
    Id got = builder.recv(mod(rank - d, nranks), in, {}, tag);
    for (int i = d, at = 0, k = 0; i < nranks; i += 2 * d, ++k) {
      const int run = std::min(d, nranks - i);
      Id id = builder.copy(slice(in, times(at), times(run)), blocks(i, run),
                           {got, packed[static_cast<size_t>(k)]});
      for (int j = i; j < i + run; ++j) written[static_cast<size_t>(j)] = id;
      at += run;
    }
  }
  // Block i came from rank - i. In place, the output may be overwritten once it is read.
  for (int i = 0; i < nranks; ++i)
    builder.copy(blocks(i, 1), output_ref(times(mod(rank - i, nranks)), n),
                 {written[static_cast<size_t>(i)], problem.local.in_place ? read[0] : no_step,
                  problem.local.in_place ? read[1] : no_step});
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  const double n = s.bytes / 2;
  Estimate e;
  e.near = {s.log_near, s.log_near * n};
  e.far = {s.log_far, (s.log_far + s.crossings()) * n, s.near};
  e.copied = s.bytes * (s.log_near + s.log_far + 2);
  return e;
}

}  // namespace

extern const Algorithm alltoall_bruck{
    "bruck",     "Log P messages of many blocks each; very short blocks.",
    collectives, {},
    applies,     estimate,
    generate};

}  // namespace tutti
