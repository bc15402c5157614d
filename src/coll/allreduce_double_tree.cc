// Double binary tree allreduce: each half of the vector is reduced up and broadcast down its own
// binary tree; a rank is inner in one tree and a leaf in the other. Chunks follow each other in a
// pipeline. Steps 2 log2 P + chunks; bytes sent a rank about 2n. Best for middle and long messages
// on many ranks: latency of a tree, bandwidth near that of a ring. Source: P. Sanders, J. Speck, J.
// L. Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel
// Computing 35(12), 2009; used so by NCCL since 2.4.
#include "coll/patterns.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::allreduce};
constexpr Param parameters[] = {
    {"chunk", Param::Unit::bytes, 128 << 10, 1, uint64_t{1} << 40,
     "Largest piece that one step moves; half a vector is cut into 256 pieces at most."}};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

// One tree over all ranks. Positions of the second tree are mirrored where that makes its leaves
// the inner ranks of the first (even P) or the operation needs runs of ranks; else shifted by one.
class Tree {
 public:
  Tree(int nranks, int rank, int number, bool ordered)
      : nranks_(nranks),
        how_(number == 0                  ? plain
             : nranks % 2 == 0 || ordered ? mirror
                                          : shift),
        node_(position(rank), nranks) {}

  int parent() const { return rank_at(node_.parent); }
  int left() const { return rank_at(node_.left); }
  int right() const { return rank_at(node_.right); }
  // Lowest rank in the subtree of that child.
  int lowest_of(int child) const {
    InorderTree node(position(child), nranks_);
    if (how_ == shift && node.last == nranks_ - 1) return 0;
    return how_ == mirror ? rank_at(node.last) : rank_at(node.first);
  }

 private:
  enum How { plain, mirror, shift };
  int position(int rank) const {
    return how_ == plain ? rank : how_ == mirror ? nranks_ - 1 - rank : mod(rank - 1, nranks_);
  }
  int rank_at(int position) const {
    if (position < 0) return -1;
    return how_ == plain    ? position
           : how_ == mirror ? nranks_ - 1 - position
                            : (position + 1) % nranks_;
  }
  int nranks_;
  How how_;
  InorderTree node_;
};

// One half of the vector through one tree.
class HalfTree {
 public:
  HalfTree(ScheduleBuilder& builder, const Tree& tree, int rank, Ref own, Ref result, Pieces pieces,
           uint32_t tag)
      : builder_(builder), tree_(tree), own_(own), result_(result), pieces_(pieces), tag_(tag) {
    for (int child : {tree.left(), tree.right()})
      if (child >= 0) children_.push_back({child, tree.lowest_of(child), {}, {}});
    for (Child& child : children_)
      for (int slot = 0; slot < slots; ++slot) {
        child.landing[slot] = builder.scratch(pieces.size);
        child.freed[slot] = no_step;
      }
    for (Child& child : children_) order_.push_back(&child);
    order_.push_back(nullptr);  // the own part
    std::sort(order_.begin(), order_.end(), [&](const Child* a, const Child* b) {
      return (a ? a->lowest : rank) < (b ? b->lowest : rank);
    });
  }

  void append() {
    for (uint64_t p = 0; p < pieces_.count; ++p) {
      if (cut(result_, pieces_.size, p).count == 0) continue;
      down(p, up(p));
    }
  }

 private:
  static constexpr int slots = 4;  // chunks in flight from a child
  struct Child {
    int rank, lowest;
    Ref landing[slots];
    Id freed[slots];
  };

  // Reduces piece p of the subtree and sends it up; returns the step after which it may be
  // overwritten.
  Id up(uint64_t p) {
    const Ref to = cut(result_, pieces_.size, p), own = cut(own_, pieces_.size, p);
    const auto slot = p % slots;
    const auto tag = tag_ + static_cast<uint32_t>(p);
    Ref sum;
    Id last = no_step;
    for (size_t i = 0; i < order_.size(); ++i) {
      Child* child = order_[i];
      Ref part = own;
      Id got = no_step;
      if (child != nullptr) {
        part = slice(child->landing[slot], 0, to.count);
        got = builder_.recv(child->rank, part, {child->freed[slot]}, tag);
      }
      if (i == 0) {
        sum = part;
        last = got;
        continue;
      }
      // In place, the output holds an own part that may still be needed: only the last sum goes
      // there, the one before into the landing of the child that is among the first two parts.
      Ref into = to;
      if (i + 1 < order_.size())
        into = slice((order_[0] ? order_[0] : order_[1])->landing[slot], 0, to.count);
      last = builder_.reduce(sum, part, into, {got, last});
      sum = into;
    }
    for (Child& child : children_) child.freed[slot] = last;
    if (tree_.parent() >= 0) return builder_.send(tree_.parent(), sum, {last}, tag);
    return sum == to ? last : builder_.copy(sum, to, {last});
  }

  // Broadcasts piece p down.
  void down(uint64_t p, Id free) {
    const Ref to = cut(result_, pieces_.size, p);
    const auto tag = tag_ + static_cast<uint32_t>(p);
    Id ready = free;
    if (tree_.parent() >= 0) ready = builder_.recv(tree_.parent(), to, {free}, tag);
    for (const Child& child : children_) builder_.send(child.rank, to, {ready}, tag);
  }

  ScheduleBuilder& builder_;
  const Tree& tree_;
  Ref own_, result_;
  Pieces pieces_;
  uint32_t tag_;
  std::vector<Child> children_;
  std::vector<Child*> order_;  // parts by lowest rank; nullptr: the own part
};

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  const int nranks = place.nranks(), rank = place.rank;
  const uint64_t n = problem.agreed.count;
  const Ref own = own_vector(problem.local.in_place, n), result = output_ref(0, n);
  const bool ordered = problem.agreed.op == Op::user && !problem.agreed.commutative;
  const Pieces cuts =
      pieces(part(n, 2, 0).count, place.params[0], info(problem.agreed.dtype).extent, 256);
  for (int number = 0; number < 2; ++number) {
    Tree tree(nranks, rank, number, ordered);
    const Block half = part(n, 2, number);
    HalfTree(builder, tree, rank, slice(own, half), slice(result, half), cuts,
             static_cast<uint32_t>(number) * static_cast<uint32_t>(cuts.count))
        .append();
  }
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  const double chunks = s.chunks(s.bytes / 2, params[0], 256);
  Estimate e;
  s.tree(e, 2 * s.rounds(2) + chunks, 2 * s.bytes + 2 * s.rounds(2) * s.bytes / 2 / chunks);
  e.reduced = s.bytes;
  return e;
}

}  // namespace

extern const Algorithm allreduce_double_tree{
    "double_tree", "Two binary trees, half a vector each, in chunks; many ranks.",
    collectives,   parameters,
    applies,       estimate,
    generate};

}  // namespace tutti
