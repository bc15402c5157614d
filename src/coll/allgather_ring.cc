// Ring allgather: every block goes round the ring from its rank.
// Steps P-1; bytes sent a rank n(P-1)/P of the whole. Best for long blocks; every block lands where
// it stays. Source: R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005.
#include "coll/phases.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::allgather, Coll::allgatherv};
constexpr Param parameters[] = {
    {"chunk", Param::Unit::bytes, 1 << 20, 1, uint64_t{1} << 40,
     "Largest piece that one step moves; a block is cut into 8 pieces at most."}};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  const int nranks = place.nranks(), rank = place.rank;
  std::vector<Ref> blocks;
  uint64_t longest = 0;
  for (const Block& block : output_blocks(problem, nranks)) {
    blocks.push_back(output_ref(block.offset, block.count));
    longest = std::max(longest, block.count);
  }
  const Ref mine = blocks[static_cast<size_t>(rank)];
  const Ref own = own_block(problem, rank, {mine.offset, mine.count});
  if (own != mine) builder.copy(own, mine, {});
  const uint64_t most = std::clamp<uint64_t>(16384 / static_cast<uint64_t>(nranks), 1, 8);
  RingAllgather{.rank = rank,
                .nranks = nranks,
                .blocks = blocks,
                .own = own,
                .pieces = pieces(longest, place.params[0], info(problem.agreed.dtype).extent, most),
                .ready = {},
                .guard = {}}
      .append(builder);
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  Estimate e;
  s.ring(e, s.ranks - 1, s.bytes * (1 - 1 / s.ranks));
  return e;
}

}  // namespace

extern const Algorithm allgather_ring{
    "ring",  "Blocks go round a ring; long blocks.", collectives, parameters, applies, estimate,
    generate};

}  // namespace tutti
