// Linear scatter: the root sends every rank its block.
// Steps 1, P-1 messages at the root, `window` of them at once; bytes sent by the root: all other
// blocks. Best for long blocks, and the only way where the root alone knows all sizes. Source:
// common practice, as in Open MPI and MPICH.
#include "coll/phases.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::scatter, Coll::scatterv};
constexpr Param parameters[] = {
    {"window", Param::Unit::number, 32, 1, 4096, "Sends that the root has posted at once."}};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  const int nranks = place.nranks(), rank = place.rank, root = problem.agreed.root;
  if (rank != root) {
    const uint64_t n =
        problem.agreed.coll == Coll::scatterv ? problem.local.count : problem.agreed.count;
    if (n != 0) builder.recv(root, output_ref(0, n), {});
    return {};
  }
  const std::vector<Block> blocks = input_blocks(problem, nranks);
  std::vector<Id> posted(place.params[0], no_step);
  for (int i = 1; i < nranks; ++i) {
    const int peer = (root + i) % nranks;
    const Block& block = blocks[static_cast<size_t>(peer)];
    Id& slot = posted[static_cast<size_t>(i) % posted.size()];
    if (block.count != 0) slot = builder.send(peer, input_ref(block.offset, block.count), {slot});
  }
  const Block& mine = blocks[static_cast<size_t>(rank)];
  if (!problem.local.in_place)
    builder.copy(input_ref(mine.offset, mine.count), output_ref(0, mine.count), {});
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  // One link of the root carries all blocks: those of its node and those of others side by side.
  const double posts = std::max(1.0, (s.ranks - 1) / 8), near = std::min(s.near, s.ranks);
  Estimate e;
  e.near = {s.far > 1 ? 1 : posts, s.bytes * (near - 1) / s.ranks, 1, near - 1};
  e.far = {s.far > 1 ? posts : 0, s.bytes * (1 - near / s.ranks), 1, s.ranks - near};
  e.chunks = s.ranks;
  return e;
}

}  // namespace

extern const Algorithm scatter_linear{
    "linear",    "The root sends to everyone; long or uneven blocks.",
    collectives, parameters,
    applies,     estimate,
    generate};

}  // namespace tutti
