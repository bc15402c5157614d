// Pairwise reduce-scatter: at step s every rank receives its block of rank r + s and sends rank r -
// s its own. Parts arrive in rank order from r to P-1 and then from 0 to r-1; two sums take them,
// so operations need not commute. Steps P-1; bytes sent a rank n(P-1)/P. Best for long blocks, and
// for blocks of very different length. Source: R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1),
// 2005; the two sums are tutti's.
#include "coll/patterns.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::reduce_scatter, Coll::reduce_scatter_block};
constexpr Param parameters[] = {
    {"window", Param::Unit::number, 4, 1, 64, "Messages in flight from a rank."}};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

// A sum that grows at its upper end. Before the second part it lies where the first part does.
struct Sum {
  Ref at;
  Id ready = no_step;
  bool empty = true;
};

class Pairwise {
 public:
  Pairwise(const Problem& problem, const Place& place, ScheduleBuilder& builder)
      : builder_(builder),
        rank_(place.rank),
        nranks_(place.nranks()),
        window_(place.params[0]),
        in_place_(problem.local.in_place),
        own_(own_vector(in_place_, agreed_total(problem.agreed, nranks_))),
        blocks_(agreed_blocks(problem.agreed, nranks_)) {}

  void append() {
    const Block mine = blocks_[static_cast<size_t>(rank_)];
    const uint64_t n = mine.count;
    Sum high{slice(own_, mine), no_step, false}, low;
    sums_[0] = builder_.scratch(nranks_ > 1 ? n : 0);
    sums_[1] = builder_.scratch(rank_ > 0 ? n : 0);
    std::vector<Ref> landing(std::min<uint64_t>(window_, static_cast<uint64_t>(nranks_ - 1)));
    for (Ref& ref : landing) ref = builder_.scratch(n);
    std::vector<Id> freed(landing.size(), no_step), sent(landing.size(), no_step);
    for (int s = 1; s < nranks_; ++s) {
      const auto slot = static_cast<size_t>(s) % landing.size();
      const Id sent_before = sent[slot];
      send(mod(rank_ - s, nranks_), sent[slot], freed[slot]);
      if (n == 0) continue;
      const int peer = mod(rank_ + s, nranks_);
      Id got = builder_.recv(peer, landing[slot], {freed[slot], sent_before});
      Sum& sum = peer > rank_ ? high : low;
      freed[slot] = add(sum, sums_[peer > rank_ ? 0 : 1], landing[slot], got);
    }
    finish(low, high, output_ref(0, n), sent);
  }

 private:
  void send(int peer, Id& sent, Id freed) {
    const Block block = blocks_[static_cast<size_t>(peer)];
    if (block.count == 0) return;
    Id id = builder_.send(peer, slice(own_, block), {sent, freed});
    sent = id;
  }

  // Returns the step that frees the part's place.
  Id add(Sum& sum, Ref space, Ref part, Id got) {
    if (sum.empty)
      sum.ready = builder_.copy(part, space, {got});
    else
      sum.ready = builder_.reduce(sum.at, part, space, {got, sum.ready});
    sum.at = space;
    sum.empty = false;
    return sum.ready;
  }

  // In place, the result overwrites blocks that were sent: it waits for all sends. The last of each
  // slot stand for those before.
  void finish(const Sum& low, const Sum& high, Ref result, const std::vector<Id>& sent) {
    std::vector<Id> after = {low.ready, high.ready};
    if (in_place_) after.insert(after.end(), sent.begin(), sent.end());
    if (!low.empty && in_place_) {
      Id staged = builder_.reduce(low.at, high.at, low.at, {low.ready, high.ready});
      after.push_back(staged);
      builder_.copy(low.at, result, std::span<const Id>(after));
    } else if (!low.empty)
      builder_.reduce(low.at, high.at, result, std::span<const Id>(after));
    else if (high.at != result)
      builder_.copy(high.at, result, std::span<const Id>(after));
  }

  ScheduleBuilder& builder_;
  int rank_, nranks_;
  uint64_t window_;
  bool in_place_;
  Ref own_;
  std::vector<Block> blocks_;
  Ref sums_[2];
};

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  Pairwise(problem, place, builder).append();
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  const double window = static_cast<double>(params[0]);
  Estimate e;
  s.pairs(e, (s.ranks - 1) / window, s.bytes * (1 - 1 / s.ranks), s.near * (1 - s.near / s.ranks));
  e.reduced = s.bytes;
  return e;
}

}  // namespace

extern const Algorithm reduce_scatter_pairwise{
    "pairwise",  "Every pair exchanges its blocks directly; long or uneven blocks.",
    collectives, parameters,
    applies,     estimate,
    generate};

}  // namespace tutti
