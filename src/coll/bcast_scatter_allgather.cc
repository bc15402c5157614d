// Scatter-allgather broadcast: the message is scattered down a binomial tree, then gathered by all
// round a ring. Steps log2 P + P - 1; bytes sent a rank about 2n. Best for long messages. Source:
// M. Barnett, L. Shuler, R. van de Geijn, S. Gupta, D. Payne, J. Watts, "Interprocessor collective
// communication library (InterCom)", SHPCC 1994; R. Thakur et al., IJHPCA 19(1), 2005.
#include "coll/phases.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::bcast};
constexpr Param parameters[] = {
    {"chunk", Param::Unit::bytes, 1 << 20, 1, uint64_t{1} << 40,
     "Largest piece that one step of the ring moves; a block is cut into 8 pieces at most."}};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  const int nranks = place.nranks(), root = problem.agreed.root;
  const int v = mod(place.rank - root, nranks);
  auto real = [&](int virtual_rank) { return (virtual_rank + root) % nranks; };
  const std::vector<Block> blocks = parts(problem.agreed.count, nranks);
  const Ref all = output_ref(0, problem.agreed.count);
  auto run = [&](int first, int n) {
    const Block &low = blocks[static_cast<size_t>(first)],
                &high = blocks[static_cast<size_t>(first + n - 1)];
    return slice(all, low.offset, high.offset + high.count - low.offset);
  };

  const KnomialTree tree(v, nranks, 2);
  Id got = no_step;
  const Ref mine = run(v, tree.span);
  if (tree.parent >= 0 && mine.count != 0) got = builder.recv(real(tree.parent), mine, {});
  for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child) {
    const Ref theirs = run(child->v, child->span);
    if (theirs.count != 0) builder.send(real(child->v), theirs, {got});
  }

  const Pieces cuts = pieces(blocks[0].count, place.params[0], info(problem.agreed.dtype).extent,
                             std::clamp<uint64_t>(16384 / static_cast<uint64_t>(nranks), 1, 8));
  const int up = mod(v + 1, nranks), up_span = KnomialTree(up, nranks, 2).span;
  // Whether the scatter brings `block` to v, so that the ring need not.
  auto scattered = [](int block, int v, int span) { return block >= v && block < v + span; };
  for (uint64_t p = 0; p < cuts.count; ++p) {
    Id came = no_step;
    for (int s = 0; s + 1 < nranks; ++s) {
      const auto tag = 1 + static_cast<uint32_t>(s) * static_cast<uint32_t>(cuts.count) +
                       static_cast<uint32_t>(p);
      const int sent = mod(v - s, nranks), coming = mod(v - s - 1, nranks);
      const Ref leaving = cut(run(sent, 1), cuts.size, p);
      const Ref arriving = cut(run(coming, 1), cuts.size, p);
      if (leaving.count != 0 && !scattered(sent, up, up_span))
        builder.send(real(up), leaving, {scattered(sent, v, tree.span) ? got : came}, tag);
      if (arriving.count != 0 && !scattered(coming, v, tree.span))
        came = builder.recv(real(mod(v - 1, nranks)), arriving, {}, tag);
    }
  }
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  Estimate e;
  s.tree(e, s.rounds(2), s.bytes * (1 - 1 / s.ranks));
  s.ring(e, s.ranks - 1, s.bytes * (1 - 1 / s.ranks));
  return e;
}

}  // namespace

extern const Algorithm bcast_scatter_allgather{
    "scatter_allgather",
    "Binomial scatter, then ring allgather; long messages.",
    collectives,
    parameters,
    applies,
    estimate,
    generate};

}  // namespace tutti
