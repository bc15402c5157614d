// Rabenseifner's reduce: recursive halving reduce-scatter, then a binomial gather to the root.
// Steps 2 log2 P, and up to 2 more when P is not a power of two; bytes sent a rank about 2n(P-1)/P.
// Best for long messages.
// Source: R. Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004. Halving
// starts with the nearest rank, so every part is a run of ranks and operations need not commute.
#include "coll/patterns.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::reduce};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

struct Level {
  Ref kept, given;
  Id given_sent;
};

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  const int nranks = place.nranks(), rank = place.rank, root = problem.agreed.root;
  const uint64_t n = problem.agreed.count;
  const Fold fold(nranks);
  const int rounds = ceil_log2(fold.power), active = fold.active_of(rank);
  const auto tag_in = static_cast<uint32_t>(2 * rounds), tag_out = tag_in + 1;
  const Ref own = own_vector(problem.local.in_place, n), result = output_ref(0, n);
  if (fold.idle(rank)) {
    Id sent = builder.send(rank - 1, own, {}, tag_in);
    if (rank == root) builder.recv(rank - 1, result, {sent}, tag_out);
    return {};
  }
  // The root works in its output, all others in scratch.
  const Ref work = rank == root ? result : builder.scratch(n);
  Ref mine = own;
  Id last = no_step;
  if (fold.folded(rank)) {
    const Ref theirs = builder.scratch(n);
    last = builder.reduce(own, theirs, work, {builder.recv(rank + 1, theirs, {}, tag_in)});
    mine = work;
  }
  std::vector<Level> levels;
  Block range{0, n};
  for (int k = 0; k < rounds; ++k) {
    const int peer = fold.rank_of(active ^ (1 << k));
    const bool low = (active >> k & 1) == 0;
    const Block lower{range.offset, range.count / 2};
    const Block upper{lower.offset + lower.count, range.count - lower.count};
    const Block kept = low ? lower : upper, given = low ? upper : lower;
    Id sent = no_step, got = no_step;
    const Ref theirs = builder.scratch(kept.count);
    if (given.count != 0)
      sent = builder.send(peer, slice(mine, given), {last}, static_cast<uint32_t>(k));
    if (kept.count != 0) got = builder.recv(peer, theirs, {}, static_cast<uint32_t>(k));
    const Ref part = slice(mine, kept);
    last = builder.reduce(low ? part : theirs, low ? theirs : part, slice(work, kept), {got, last});
    levels.push_back({slice(work, kept), slice(work, given), sent});
    mine = work;
    range = kept;
  }
  // Back up the levels: whoever is not on the root's side of a bit sends what it has.
  const int target = fold.active_of(root);
  std::vector<Id> complete = {last};
  for (int k = rounds - 1; k >= 0; --k) {
    const Level& level = levels[static_cast<size_t>(k)];
    const int peer = fold.rank_of(active ^ (1 << k));
    const auto tag = static_cast<uint32_t>(rounds + k);
    if ((active >> k & 1) != (target >> k & 1)) {
      if (level.kept.count != 0) builder.send(peer, level.kept, std::span<const Id>(complete), tag);
      return {};
    }
    if (level.given.count != 0)
      complete.push_back(builder.recv(peer, level.given, {level.given_sent}, tag));
  }
  if (rank != root) {
    builder.send(root, work, std::span<const Id>(complete), tag_out);
    return {};
  }
  if (rounds == 0 && mine != result) builder.copy(mine, result, {last});
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  const double n = s.bytes;
  Estimate e;
  e.near = {2 * s.log_near, 2 * n * (1 - 1 / s.near)};
  e.far = {2 * s.log_far, 2 * n / s.near * (1 - 1 / s.far), s.near};
  if (s.folds) s.add(e, 2, 2 * n);
  e.reduced = (s.folds ? 2 : 1) * n;
  return e;
}

}  // namespace

extern const Algorithm reduce_rabenseifner{
    "rabenseifner", "Recursive halving, then gather to the root; long messages.",
    collectives,    {},
    applies,        estimate,
    generate};

}  // namespace tutti
