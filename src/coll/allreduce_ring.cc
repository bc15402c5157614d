// Ring allreduce: a ring reduce-scatter, then a ring allgather.
// Steps 2(P-1); bytes sent a rank 2n(P-1)/P, the least possible. Best for long messages: every link
// carries one stream in one direction. Blocks are cut into pieces, so that a piece is reduced while
// the next one travels. Source: P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for
// clusters of workstations", JPDC 69(2), 2009.
#include "coll/phases.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::allreduce};
constexpr Param parameters[] = {
    {"chunk", Param::Unit::bytes, 512 << 10, 1, uint64_t{1} << 40,
     "Largest piece that one step moves; a block is cut into 8 pieces at most."}};

bool applies(const Agreed& agreed, const Topology&, const Params&) {
  return agreed.op != Op::user || agreed.commutative;
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  const int nranks = place.nranks(), rank = place.rank;
  const uint64_t n = problem.agreed.count;
  const std::vector<Block> blocks = parts(n, nranks);
  const Block mine = blocks[static_cast<size_t>(rank)];
  const uint64_t most = std::clamp<uint64_t>(16384 / static_cast<uint64_t>(nranks), 1, 8);

  RingReduceScatter scatter{
      .rank = rank,
      .nranks = nranks,
      .own = own_vector(problem.local.in_place, n),
      .blocks = blocks,
      .result = output_ref(mine.offset, mine.count),
      .pieces = pieces(blocks[0].count, place.params[0], info(problem.agreed.dtype).extent, most)};
  scatter.append(builder);

  std::vector<Ref> places;
  for (const Block& block : blocks) places.push_back(output_ref(block.offset, block.count));
  RingAllgather gather{
      .rank = rank,
      .nranks = nranks,
      .blocks = places,
      .own = scatter.result,
      .pieces = scatter.pieces,
      .tag = static_cast<uint32_t>(nranks - 1) * static_cast<uint32_t>(scatter.pieces.count),
      .ready = scatter.done,
      .guard = {}};
  if (problem.local.in_place) gather.guard = scatter.reading;
  gather.append(builder);
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  Estimate e;
  s.ring(e, 2 * (s.ranks - 1), 2 * s.bytes * (1 - 1 / s.ranks));
  e.reduced = s.bytes;
  return e;
}

}  // namespace

extern const Algorithm allreduce_ring{
    "ring",      "Reduce-scatter and allgather round a ring; long messages.",
    collectives, parameters,
    applies,     estimate,
    generate};

}  // namespace tutti
