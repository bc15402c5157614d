// Binomial gather: every rank collects the blocks of its subtree and passes them on as one message.
// Steps ceil(log2 P); bytes sent a rank up to half of all. Best for short blocks.
// Source: R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005.
#include "coll/phases.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::gather};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

// The root's blocks lie by rank, a subtree's from its first rank on: one that goes round the end
// goes to the root as two messages. Number of blocks in the first.
int before_wrap(int v, int span, int root, int nranks) {
  return std::min(span, nranks - (v + root) % nranks);
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  const int nranks = place.nranks(), root = problem.agreed.root;
  const int v = mod(place.rank - root, nranks);
  auto real = [&](int other) { return (other + root) % nranks; };
  const uint64_t n = problem.agreed.count;
  auto times = [&](int blocks) { return static_cast<uint64_t>(blocks) * n; };
  const KnomialTree tree(v, nranks, 2);
  if (v == 0) {
    const Block mine{times(root), n};
    const Ref own = own_block(problem, root, mine);
    if (own != output_ref(mine.offset, n)) builder.copy(own, output_ref(mine.offset, n), {});
    for (const auto& child : tree.children) {
      const int first = before_wrap(child.v, child.span, root, nranks);
      builder.recv(real(child.v), output_ref(times(real(child.v)), times(first)), {}, 0);
      if (first < child.span)
        builder.recv(real(child.v), output_ref(0, times(child.span - first)), {}, 1);
    }
    return {};
  }
  const Ref own = input_ref(0, n);
  Ref all = own;
  std::vector<Id> ready;
  if (tree.span > 1) {
    all = builder.scratch(times(tree.span));
    ready.push_back(builder.copy(own, slice(all, 0, n), {}));
    for (const auto& child : tree.children)
      ready.push_back(
          builder.recv(real(child.v), slice(all, times(child.v - v), times(child.span)), {}, 0));
  }
  const int first = tree.parent == 0 ? before_wrap(v, tree.span, root, nranks) : tree.span;
  const auto after = std::span<const Id>(ready);
  builder.send(real(tree.parent), slice(all, 0, times(first)), after, 0);
  if (first < tree.span)
    builder.send(real(tree.parent), slice(all, times(first), times(tree.span - first)), after, 1);
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  Estimate e;
  s.tree(e, s.rounds(2), s.bytes * (1 - 1 / s.ranks));
  e.copied = s.bytes / s.ranks;
  return e;
}

}  // namespace

extern const Algorithm gather_binomial{
    "binomial", "Binomial tree; short blocks.", collectives, {}, applies, estimate, generate};

}  // namespace tutti
