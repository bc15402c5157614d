// Pipelined chain reduce: chunks go down a chain of ranks to the root, and every rank adds its
// part. Steps P - 2 + chunks; bytes sent a rank n. Best for very long messages on few ranks.
// Source: J. Pjesivac-Grbovic et al., "Performance analysis of MPI collective operations", Cluster
// Computing 10(2), 2007. A non-commutative operation goes from rank P-1 to 0, then to the root.
#include "coll/patterns.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::reduce};
constexpr Param parameters[] = {
    {"chunk", Param::Unit::bytes, 128 << 10, 1, uint64_t{1} << 40,
     "Largest piece that one step moves; a message is cut into 512 pieces at most."}};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  constexpr size_t slots = 4;  // chunks in flight
  const Agreed& agreed = problem.agreed;
  const int nranks = place.nranks(), rank = place.rank, root = agreed.root;
  const bool ordered = agreed.op == Op::user && !agreed.commutative;
  const int end = ordered ? 0 : root, v = mod(rank - end, nranks);
  const Ref own = own_vector(problem.local.in_place, agreed.count);
  const Ref result = output_ref(0, agreed.count);
  const Pieces cuts = pieces(agreed.count, place.params[0], info(agreed.dtype).extent, 512);
  const auto forward_tag = static_cast<uint32_t>(cuts.count);
  Ref landing[slots];
  Id freed[slots] = {no_step, no_step, no_step, no_step};
  const bool last_of_chain = v + 1 == nranks;
  for (size_t i = 0; i < slots && !last_of_chain; ++i) landing[i] = builder.scratch(cuts.size);
  // Parts arrive from ranks rank + 1 .. end - 1, round the end: with rank 0's unless this is below
  // it.
  const bool lower = end == 0 || rank < end;
  for (uint64_t p = 0; p < cuts.count; ++p) {
    const auto tag = static_cast<uint32_t>(p);
    const Ref mine = cut(own, cuts.size, p);
    if (mine.count == 0) continue;
    Ref sum = mine;
    Id ready = no_step;
    Id& free = freed[p % slots];
    const bool final = v == 0 && rank == root;
    if (!last_of_chain) {
      const Ref theirs = slice(landing[p % slots], 0, mine.count);
      Id got = builder.recv(mod(rank + 1, nranks), theirs, {free}, tag);
      sum = final ? cut(result, cuts.size, p) : theirs;
      ready = builder.reduce(lower ? mine : theirs, lower ? theirs : mine, sum, {got});
      free = ready;
    }
    if (v > 0) free = builder.send(mod(rank - 1, nranks), sum, {ready}, tag);
    if (final && sum == mine && sum != cut(result, cuts.size, p))
      builder.copy(sum, cut(result, cuts.size, p), {});
    if (v == 0 && rank != root) free = builder.send(root, sum, {ready}, forward_tag + tag);
    if (v != 0 && rank == root)
      builder.recv(0, cut(result, cuts.size, p), {free}, forward_tag + tag);
  }
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  const double chunks = s.chunks(s.bytes, params[0], 512), hops = std::max(s.ranks - 2, 0.0);
  Estimate e;
  s.ring(e, hops + chunks, s.bytes + hops * s.bytes / chunks);
  e.reduced = s.bytes + hops * s.bytes / chunks;
  return e;
}

}  // namespace

extern const Algorithm reduce_chain{
    "chain",     "Chunks down a chain of ranks; very long messages.",
    collectives, parameters,
    applies,     estimate,
    generate};

}  // namespace tutti
