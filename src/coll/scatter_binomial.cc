// Binomial scatter: the root sends each subtree its blocks as one message; every rank passes them
// on. Steps ceil(log2 P); bytes sent a rank up to half of all. Best for short blocks. Source: R.
// Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005.
#include "coll/phases.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::scatter};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

// A subtree whose ranks go round the end comes from the root as two messages. Blocks in the first.
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
    for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child) {
      const int first = before_wrap(child->v, child->span, root, nranks);
      builder.send(real(child->v), input_ref(times(real(child->v)), times(first)), {}, 0);
      if (first < child->span)
        builder.send(real(child->v), input_ref(0, times(child->span - first)), {}, 1);
    }
    if (!problem.local.in_place) builder.copy(input_ref(times(root), n), output_ref(0, n), {});
    return {};
  }
  const Ref result = output_ref(0, n);
  const Ref all = tree.span > 1 ? builder.scratch(times(tree.span)) : result;
  const int first = tree.parent == 0 ? before_wrap(v, tree.span, root, nranks) : tree.span;
  std::vector<Id> got = {builder.recv(real(tree.parent), slice(all, 0, times(first)), {}, 0)};
  if (first < tree.span)
    got.push_back(
        builder.recv(real(tree.parent), slice(all, times(first), times(tree.span - first)), {}, 1));
  const auto after = std::span<const Id>(got);
  for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child)
    builder.send(real(child->v), slice(all, times(child->v - v), times(child->span)), after, 0);
  if (tree.span > 1) builder.copy(slice(all, 0, n), result, after);
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  Estimate e;
  s.tree(e, s.rounds(2), s.bytes * (1 - 1 / s.ranks));
  e.copied = s.bytes / s.ranks;
  return e;
}

}  // namespace

extern const Algorithm scatter_binomial{
    "binomial", "Binomial tree; short blocks.", collectives, {}, applies, estimate, generate};

}  // namespace tutti
