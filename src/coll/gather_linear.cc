// Linear gather: every rank sends its block to the root.
// Steps 1, P-1 messages at the root, `window` of them at once; bytes sent a rank: its block. Best
// for long blocks, and the only way where the root alone knows all sizes. Source: common practice,
// as in Open MPI and MPICH.
#include "coll/phases.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::gather, Coll::gatherv};
constexpr Param parameters[] = {
    {"window", Param::Unit::number, 32, 1, 4096, "Receives that the root has posted at once."}};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  const int nranks = place.nranks(), rank = place.rank, root = problem.agreed.root;
  if (rank != root) {
    const Ref own = own_block(problem, rank, {});
    if (own.count != 0) builder.send(root, own, {});
    return {};
  }
  const std::vector<Block> blocks = output_blocks(problem, nranks);
  const Block mine = blocks[static_cast<size_t>(rank)];
  const Ref own = own_block(problem, rank, mine);
  if (own != output_ref(mine.offset, mine.count))
    builder.copy(own, output_ref(mine.offset, mine.count), {});
  std::vector<Id> posted(place.params[0], no_step);
  for (int i = 1; i < nranks; ++i) {
    const int peer = (root + i) % nranks;
    const Block& block = blocks[static_cast<size_t>(peer)];
    Id& slot = posted[static_cast<size_t>(i) % posted.size()];
    if (block.count != 0) slot = builder.recv(peer, output_ref(block.offset, block.count), {slot});
  }
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  // One link of the root carries all blocks: those of its node and those of others side by side.
  const double posts = std::max(1.0, (s.ranks - 1) / 8), near = std::min(s.near, s.ranks);
  Estimate e;
  e.near = {s.far > 1 ? 1 : posts, s.bytes * (near - 1) / s.ranks, 1, 0, near - 1};
  e.far = {s.far > 1 ? posts : 0, s.bytes * (1 - near / s.ranks), 1, 0, s.ranks - near};
  e.chunks = s.ranks;
  return e;
}

}  // namespace

extern const Algorithm gather_linear{
    "linear",    "Everyone sends to the root; long or uneven blocks.",
    collectives, parameters,
    applies,     estimate,
    generate};

}  // namespace tutti
