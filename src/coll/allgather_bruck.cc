// Bruck's allgather: at step k every rank sends the 2^k blocks it has to rank - 2^k.
// Steps ceil(log2 P) for any P; bytes sent a rank n(P-1)/P of the whole, and one copy of all
// blocks. Best for short blocks. Source: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby,
// "Efficient algorithms for all-to-all communications in multiport message-passing systems", IEEE
// TPDS 8(11), 1997.
#include "coll/phases.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::allgather, Coll::allgatherv};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  const int nranks = place.nranks(), rank = place.rank;
  const std::vector<Block> blocks = output_blocks(problem, nranks);
  // Scratch holds the blocks of ranks rank, rank + 1, ... round the end.
  std::vector<uint64_t> offset = {0};
  for (int i = 0; i < nranks; ++i)
    offset.push_back(offset.back() + blocks[static_cast<size_t>(mod(rank + i, nranks))].count);
  const Ref all = builder.scratch(offset.back());
  auto run = [&](int first, int n) {
    const uint64_t begin = offset[static_cast<size_t>(first)];
    return slice(all, begin, offset[static_cast<size_t>(first + n)] - begin);
  };
  const Block mine = blocks[static_cast<size_t>(rank)];
  const Ref own = own_block(problem, rank, mine),
            place_of_own = output_ref(mine.offset, mine.count);
  std::vector<Id> ready = {builder.copy(own, run(0, 1), {})};
  if (own != place_of_own) builder.copy(own, place_of_own, {});
  uint32_t tag = 0;
  for (int have = 1; have < nranks; ++tag) {
    const int more = std::min(have, nranks - have);
    builder.send(mod(rank - have, nranks), run(0, more), std::span<const Id>(ready), tag);
    Id got = builder.recv(mod(rank + have, nranks), run(have, more), {}, tag);
    ready.push_back(got);
    for (int i = have; i < have + more; ++i) {
      const Block& to = blocks[static_cast<size_t>(mod(rank + i, nranks))];
      builder.copy(run(i, 1), output_ref(to.offset, to.count), {got});
    }
    have += more;
  }
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  const double n = s.bytes;
  Estimate e;
  e.near = {s.log_near, n / s.far * (1 - 1 / s.near)};
  e.far = {s.log_far, n * (1 - 1 / s.far), s.near};
  e.copied = n;
  return e;
}

}  // namespace

extern const Algorithm allgather_bruck{
    "bruck",     "Doubling with rotated blocks, any P; short blocks.",
    collectives, {},
    applies,     estimate,
    generate};

}  // namespace tutti
