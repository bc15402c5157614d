// Recursive doubling allreduce: at step k, groups of 2^k ranks exchange whole vectors with the
// group beside them, so that everyone holds the result after log2 P steps. Steps ceil(log2 P), and
// 2 more when P is not a power of two; bytes sent a rank n log2 P. Best for short messages. Source:
// R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in
// MPICH", IJHPCA 19(1), 2005. Here the extra ranks of an uneven P are folded into their left
// neighbours, so every part is a run of neighbouring ranks and operations need not commute.
#include "coll/patterns.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::allreduce};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  const int nranks = place.nranks(), rank = place.rank;
  const uint64_t n = problem.agreed.count;
  const Ref own = own_vector(problem.local.in_place, n);
  const Ref result = output_ref(0, n);
  if (nranks == 1) {
    if (own != result) builder.copy(own, result, {});
    return {};
  }
  const Fold fold(nranks);
  const int rounds = ceil_log2(fold.power);
  const uint32_t tag_in = static_cast<uint32_t>(rounds), tag_out = tag_in + 1;
  if (fold.idle(rank)) {
    Id sent = builder.send(rank - 1, own, {}, tag_in);
    builder.recv(rank - 1, result, {own == result ? sent : no_step}, tag_out);
    return {};
  }

  // `last` is what the next reader of `mine` waits for.
  Ref mine = own;
  Id last = no_step;
  if (fold.folded(rank)) {
    Ref theirs = builder.scratch(n);
    Id got = builder.recv(rank + 1, theirs, {}, tag_in);
    last = builder.reduce(mine, theirs, result, {got});
    mine = result;
  }
  const int active = fold.active_of(rank);
  // Two receive buffers in turn: the next message may arrive while this one is reduced.
  const Ref landing[2] = {builder.scratch(n), rounds > 1 ? builder.scratch(n) : Ref{}};
  Id freed[2] = {no_step, no_step};
  for (int k = 0; k < rounds; ++k) {
    const int peer_active = active ^ (1 << k), peer = fold.rank_of(peer_active);
    const Ref theirs = landing[k % 2];
    Id sent = builder.send(peer, mine, {last}, static_cast<uint32_t>(k));
    Id got = builder.recv(peer, theirs, {freed[k % 2]}, static_cast<uint32_t>(k));
    const bool lower = peer_active < active;
    last = builder.reduce(lower ? theirs : mine, lower ? mine : theirs, result, {sent, got, last});
    freed[k % 2] = last;
    mine = result;
  }
  if (fold.folded(rank)) builder.send(rank + 1, result, {last}, tag_out);
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  const double n = s.bytes;
  Estimate e;
  e.near = {s.log_near, s.log_near * n};
  e.far = {s.log_far, s.log_far * n, s.near};
  if (s.folds) s.add(e, 2, 2 * n);
  e.reduced = (s.log_near + s.log_far + (s.folds ? 1 : 0)) * n;
  return e;
}

}  // namespace

extern const Algorithm allreduce_recursive_doubling{
    "recursive_doubling",
    "Exchange of whole vectors with ranks at distance 1, 2, 4, ...; short messages.",
    collectives,
    {},
    applies,
    estimate,
    generate};

}  // namespace tutti
