// Recursive halving reduce-scatter: exchange with the rank at distance P/2, P/4, ... those blocks
// that belong to the other's half; each rank ends with its own block, in place. Steps log2 P, and 2
// more for folded ranks when P is not a power of two; bytes sent a rank n(P-1)/P. Best for short
// and middle messages. Source: R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005. Parts are
// not runs of ranks, so the operation must commute.
#include "coll/patterns.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::reduce_scatter, Coll::reduce_scatter_block};

bool applies(const Agreed& agreed, const Topology&, const Params&) {
  return agreed.op != Op::user || agreed.commutative;
}

class Halving {
 public:
  Halving(const Problem& problem, const Place& place, ScheduleBuilder& builder)
      : builder_(builder),
        fold_(place.nranks()),
        rank_(place.rank),
        blocks_(agreed_blocks(problem.agreed, place.nranks())),
        total_(blocks_.back().offset + blocks_.back().count),
        own_(own_vector(problem.local.in_place, total_)),
        result_(output_ref(0, blocks_[static_cast<size_t>(rank_)].count)),
        rounds_(ceil_log2(fold_.power)) {}

  void append() {
    if (fold_.idle(rank_)) {
      Id sent = builder_.send(rank_ - 1, own_, {}, tag_in);
      if (result_.count != 0)
        builder_.recv(rank_ - 1, result_, {own_.space == Space::output ? sent : no_step}, tag_out);
      return;
    }
    holds_ = own_;
    if (fold_.folded(rank_)) {
      const Ref theirs = builder_.scratch(total_);
      Id got = builder_.recv(rank_ + 1, theirs, {}, tag_in);
      last_ = builder_.reduce(own_, theirs, theirs, {got});
      holds_ = theirs;
    }
    const int active = fold_.active_of(rank_);
    for (int k = rounds_ - 1; k >= 0; --k) halve(active, k);
    // What is left are the blocks of this rank and of the one folded into it.
    const Ref mine = slice(holds_, 0, result_.count);
    std::vector<Id> after = sends_;
    after.push_back(last_);
    if (mine != result_) builder_.copy(mine, result_, std::span<const Id>(after));
    if (fold_.folded(rank_) && holds_.count != result_.count)
      builder_.send(rank_ + 1, slice(holds_, result_.count, holds_.count - result_.count), {last_},
                    tag_out);
  }

 private:
  static constexpr uint32_t tag_in = 30, tag_out = 31;

  // Offset of the first block of active rank `a`.
  uint64_t begin(int a) const {
    return a == fold_.power ? total_ : blocks_[static_cast<size_t>(fold_.rank_of(a))].offset;
  }

  // Actives [first, first + 2 * half) share a vector; each side keeps the blocks of its half.
  void halve(int active, int k) {
    const int half = 1 << k, first = active & ~(2 * half - 1);
    const uint64_t base = begin(first), middle = begin(first + half) - base;
    const uint64_t end = begin(first + 2 * half) - base;
    const bool low = (active & half) == 0;
    const Block lower{0, middle}, upper{middle, end - middle};
    const Ref kept = slice(holds_, low ? lower : upper), given = slice(holds_, low ? upper : lower);
    const int peer = fold_.rank_of(active ^ half);
    const auto tag = static_cast<uint32_t>(k);
    if (given.count != 0) sends_.push_back(builder_.send(peer, given, {last_}, tag));
    if (kept.count != 0) {
      const Ref theirs = builder_.scratch(kept.count);
      Id got = builder_.recv(peer, theirs, {}, tag);
      // The set of ranks whose parts are here has its lowest member on the low side.
      last_ = builder_.reduce(low ? kept : theirs, low ? theirs : kept, theirs, {got, last_});
      holds_ = theirs;
    } else {
      holds_ = kept;
    }
  }

  ScheduleBuilder& builder_;
  Fold fold_;
  int rank_;
  std::vector<Block> blocks_;
  uint64_t total_;
  Ref own_, result_;
  int rounds_;
  Ref holds_;  // the blocks that this rank is left with, in rank order
  Id last_ = no_step;
  std::vector<Id> sends_;
};

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  Halving(problem, place, builder).append();
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  const double n = s.bytes;
  Estimate e;
  e.near = {s.log_near, n / s.far * (1 - 1 / s.near)};
  e.far = {s.log_far, n * (1 - 1 / s.far), s.near};
  if (s.folds) s.add(e, 2, n + n / s.ranks);
  e.reduced = (s.folds ? 2 : 1) * n;
  return e;
}

}  // namespace

extern const Algorithm reduce_scatter_halving{
    "halving",   "Exchange with ranks at distance P/2, P/4, ...; short and middle messages.",
    collectives, {},
    applies,     estimate,
    generate};

}  // namespace tutti
