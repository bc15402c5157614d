// PAT reduce-scatter (parallel aggregated trees): the block of each rank is reduced up its own
// binomial tree, nearest ranks first; all trees run side by side and share messages. Steps
// ceil(log2 P) for any P; bytes sent a rank n(P-1)/P. Most bytes travel between near ranks. Best
// for short and middle messages on any number of ranks. Source: S. Jeaugey, "PAT: a new algorithm
// for all-gather and reduce-scatter operations at scale", arXiv 2506.20252, 2025, here with a
// buffer for the whole vector.
#include "coll/patterns.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::reduce_scatter, Coll::reduce_scatter_block};

bool applies(const Agreed& agreed, const Topology&, const Params&) {
  return agreed.op != Op::user || agreed.commutative;
}

class Pat {
 public:
  Pat(const Problem& problem, const Place& place, ScheduleBuilder& builder)
      : builder_(builder),
        rank_(place.rank),
        nranks_(place.nranks()),
        in_place_(problem.local.in_place),
        blocks_(agreed_blocks(problem.agreed, nranks_)),
        own_(own_vector(in_place_, blocks_.back().offset + blocks_.back().count)) {}

  void append() {
    // Part of the block of rank - o: at first the own contribution.
    for (int o = 0; o < nranks_; ++o)
      parts_.push_back(
          {slice(own_, blocks_[static_cast<size_t>(mod(rank_ - o, nranks_))]), no_step});
    uint32_t tag = 0;
    for (int d = 1; d < nranks_; d *= 2) tag = step(d, tag);
    const Ref result = output_ref(0, blocks_[static_cast<size_t>(rank_)].count);
    std::vector<Id> after = reads_;
    if (!in_place_) after.clear();
    after.push_back(parts_[0].ready);
    if (parts_[0].at != result) builder_.copy(parts_[0].at, result, std::span<const Id>(after));
  }

 private:
  struct Part {
    Ref at;
    Id ready;
  };

  // Distance d: parts at offsets o + d go down the ring to rank - d, for which they are at offset
  // o.
  uint32_t step(int d, uint32_t tag) {
    uint64_t leaving = 0, arriving = 0;
    for (int o = 0; o + d < nranks_; o += 2 * d) {
      leaving += parts_[static_cast<size_t>(o + d)].at.count;
      arriving += parts_[static_cast<size_t>(o)].at.count;
    }
    const Ref out = builder_.scratch(leaving), in = builder_.scratch(arriving);
    std::vector<Id> packed;
    uint64_t at = 0;
    for (int o = 0; o + d < nranks_; o += 2 * d) {
      const Part& part = parts_[static_cast<size_t>(o + d)];
      packed.push_back(builder_.copy(part.at, slice(out, at, part.at.count), {part.ready}));
      at += part.at.count;
    }
    reads_.insert(reads_.end(), packed.begin(), packed.end());
    if (leaving != 0) builder_.send(mod(rank_ - d, nranks_), out, std::span<const Id>(packed), tag);
    if (arriving != 0) take(d, in, builder_.recv(mod(rank_ + d, nranks_), in, {}, tag));
    return tag + 1;
  }

  void take(int d, Ref in, Id got) {
    uint64_t at = 0;
    for (int o = 0; o + d < nranks_; o += 2 * d) {
      Part& part = parts_[static_cast<size_t>(o)];
      const Ref theirs = slice(in, at, part.at.count);
      at += part.at.count;
      // Mine covers ranks rank .. rank + d - 1, theirs those from rank + d on, both round the end.
      const bool mine_wraps = rank_ + d > nranks_;
      const int theirs_first = mod(rank_ + d, nranks_);
      const int theirs_count = std::min(d, nranks_ - o - d);
      const bool theirs_wrap = theirs_first + theirs_count > nranks_;
      const bool lower = mine_wraps || (!theirs_wrap && rank_ < theirs_first);
      part.ready = builder_.reduce(lower ? part.at : theirs, lower ? theirs : part.at, theirs,
                                   {got, part.ready});
      reads_.push_back(part.ready);
      part.at = theirs;
    }
  }

  ScheduleBuilder& builder_;
  int rank_, nranks_;
  bool in_place_;
  std::vector<Block> blocks_;
  Ref own_;
  std::vector<Part> parts_;
  std::vector<Id> reads_;  // steps that may read the own vector
};

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  Pat(problem, place, builder).append();
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  const double n = s.bytes;
  Estimate e;
  e.near = {s.log_near, n * (1 - 1 / s.near)};
  // Rounds at short distances, with most of the bytes, reach over the ends of nodes too.
  const double over = s.far > 1 ? n * (1 - 1 / s.near) / std::max(1.0, s.near / s.nics) : 0;
  e.far = {s.log_far, n / s.near * (1 - 1 / s.far) + over, s.near};
  e.reduced = n;
  e.copied = n;
  return e;
}

}  // namespace

extern const Algorithm reduce_scatter_pat{
    "pat",       "Binomial trees of all blocks side by side, nearest ranks first; any P.",
    collectives, {},
    applies,     estimate,
    generate};

}  // namespace tutti
