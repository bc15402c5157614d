// Ring reduce-scatter: the block of rank r starts at rank r + 1 and gathers one part a step.
// Steps P-1; bytes sent a rank n(P-1)/P. Best for long messages.
// Source: as allreduce_ring (Patarasuk and Yuan 2009), its first half.
#include "coll/phases.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::reduce_scatter, Coll::reduce_scatter_block};
constexpr Param parameters[] = {
    {"chunk", Param::Unit::bytes, 512 << 10, 1, uint64_t{1} << 40,
     "Largest piece that one step moves; a block is cut into 8 pieces at most."}};

bool applies(const Agreed& agreed, const Topology&, const Params&) {
  return agreed.op != Op::user || agreed.commutative;
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  const int nranks = place.nranks();
  const std::vector<Block> blocks = agreed_blocks(problem.agreed, nranks);
  uint64_t longest = 0;
  for (const Block& block : blocks) longest = std::max(longest, block.count);
  const uint64_t most = std::clamp<uint64_t>(16384 / static_cast<uint64_t>(nranks), 1, 8);
  RingReduceScatter{
      .rank = place.rank,
      .nranks = nranks,
      .own = own_vector(problem.local.in_place, agreed_total(problem.agreed, nranks)),
      .blocks = blocks,
      .result = output_ref(0, blocks[static_cast<size_t>(place.rank)].count),
      .pieces = pieces(longest, place.params[0], info(problem.agreed.dtype).extent, most),
      .overlaps = problem.local.in_place}
      .append(builder);
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  Estimate e;
  s.ring(e, s.ranks - 1, s.bytes * (1 - 1 / s.ranks));
  e.reduced = s.bytes;
  return e;
}

}  // namespace

extern const Algorithm reduce_scatter_ring{
    "ring",      "One part a step round a ring; long messages.",
    collectives, parameters,
    applies,     estimate,
    generate};

}  // namespace tutti
