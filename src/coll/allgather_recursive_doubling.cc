// Recursive doubling allgather: groups of 2^k ranks exchange all they have with the group beside
// them. Steps log2 P, and 2 more for folded ranks when P is not a power of two; bytes sent a rank
// n(P-1)/P of the whole. Best for short and middle blocks when P is a power of two. Source: R.
// Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005.
#include "coll/phases.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::allgather, Coll::allgatherv};
constexpr uint32_t tag_in = 30, tag_below = 31, tag_above = 32;

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  const int nranks = place.nranks(), rank = place.rank;
  const Fold fold(nranks);
  PackedBlocks blocks(problem, rank, nranks, builder);
  auto begin = [&](int active) { return active == fold.power ? nranks : fold.rank_of(active); };
  if (fold.idle(rank)) {
    builder.send(rank - 1, blocks.own(), {}, tag_in);
    // All but the own block come back, in the two runs beside it.
    blocks.unpack(0, rank, builder.recv(rank - 1, blocks.range(0, rank), {}, tag_below));
    const int above = nranks - rank - 1;
    blocks.unpack(rank + 1, above,
                  builder.recv(rank - 1, blocks.range(rank + 1, above), {}, tag_above));
    return {};
  }
  std::vector<Id> ready = {blocks.own_ready()};
  if (fold.folded(rank)) {
    ready.push_back(builder.recv(rank + 1, blocks.range(rank + 1, 1), {}, tag_in));
    blocks.unpack(rank + 1, 1, ready.back());
  }
  const int active = fold.active_of(rank);
  for (int k = 0; (1 << k) < fold.power; ++k) {
    const int mine = active & ~((1 << k) - 1), theirs = mine ^ (1 << k);
    const int peer = fold.rank_of(active ^ (1 << k)), first = begin(theirs);
    const int count = begin(theirs + (1 << k)) - first, own = begin(mine + (1 << k)) - begin(mine);
    builder.send(peer, blocks.range(begin(mine), own), std::span<const Id>(ready),
                 static_cast<uint32_t>(k));
    Id got = builder.recv(peer, blocks.range(first, count), {}, static_cast<uint32_t>(k));
    blocks.unpack(first, count, got);
    ready.push_back(got);
  }
  if (fold.folded(rank)) {
    builder.send(rank + 1, blocks.range(0, rank + 1), std::span<const Id>(ready), tag_below);
    builder.send(rank + 1, blocks.range(rank + 2, nranks - rank - 2), std::span<const Id>(ready),
                 tag_above);
  }
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  const double n = s.bytes;
  Estimate e;
  e.near = {s.log_near, n / s.far * (1 - 1 / s.near)};
  e.far = {s.log_far, n * (1 - 1 / s.far), s.near};
  if (s.folds) s.add(e, 3, n);
  return e;
}

}  // namespace

extern const Algorithm allgather_recursive_doubling{
    "recursive_doubling",
    "Exchange of growing runs at distance 1, 2, 4, ...; short blocks.",
    collectives,
    {},
    applies,
    estimate,
    generate};

}  // namespace tutti
