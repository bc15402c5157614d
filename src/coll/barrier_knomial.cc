// Tree barrier: word goes up a k-nomial tree to rank 0 and down again.
// Steps 2 ceil(log_k P); 2(P-1) messages in all, where dissemination sends P log2 P. Best where the
// network is busy or messages are dear.
// Source: J. Mellor-Crummey, M. Scott, "Algorithms for scalable synchronization on shared-memory
// multiprocessors", ACM TOCS 9(1), 1991, with a k-nomial tree.
#include "coll/patterns.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::barrier};
constexpr Param parameters[] = {
    {"radix", Param::Unit::number, 4, 2, 64, "Subtrees a level, and one."}};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

Status generate(const Problem&, const Place& place, ScheduleBuilder& builder) {
  const KnomialTree tree(place.rank, place.nranks(), static_cast<int>(place.params[0]));
  std::vector<Id> heard;
  for (const auto& child : tree.children) heard.push_back(builder.recv(child.v, {}, {}, 0));
  if (tree.parent >= 0) {
    Id sent = builder.send(tree.parent, {}, std::span<const Id>(heard), 0);
    heard = {builder.recv(tree.parent, {}, {sent}, 1)};
  }
  for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child)
    builder.send(child->v, {}, std::span<const Id>(heard), 1);
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  const double k = static_cast<double>(params[0]);
  Estimate e;
  const double children = s.rounds(k) * (k - 1);
  s.tree(e, 2 * s.rounds(k) * (1 + (k - 1) / 8), 0);
  s.handle(e, children, children);
  return e;
}

}  // namespace

extern const Algorithm barrier_knomial{
    "knomial",   "Up a tree of radix k and down again; few messages.",
    collectives, parameters,
    applies,     estimate,
    generate};

}  // namespace tutti
