// k-nomial exchange: recursive doubling with radix k. In a round, k groups exchange whole vectors
// all with all, and every rank folds the k parts in rank order. Steps ceil(log_k P) rounds of k-1
// messages side by side; bytes sent a rank (k-1) n log_k P. Best for short messages where sending
// several messages costs little more than one (many-rail networks). Source: B. S. Parsons, V. S.
// Pai, "Accelerating MPI collective communications through hierarchical algorithms without
// sacrificing inter-node communication flexibility", IPDPS 2014 (recursive multiplying). Ranks
// beyond the largest power of k are folded in runs, so operations need not commute.
#include "coll/patterns.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::allreduce};
constexpr Param parameters[] = {
    {"radix", Param::Unit::number, 4, 2, 64, "Groups that exchange in a round."}};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

class Knomial {
 public:
  Knomial(const Problem& problem, const Place& place, ScheduleBuilder& builder)
      : builder_(builder),
        nranks_(place.nranks()),
        rank_(place.rank),
        radix_(static_cast<int>(place.params[0])),
        n_(problem.agreed.count),
        mine_(own_vector(problem.local.in_place, n_)) {
    while (static_cast<int64_t>(full_) * radix_ <= nranks_) full_ *= radix_;
  }

  void append() {
    // Runs of ranks act as one: run `a` is part(nranks, full, a), led by its first rank.
    int active = 0;
    while (part(run_total(), full_, active + 1).offset <= static_cast<uint64_t>(rank_) &&
           active + 1 < full_)
      ++active;
    const int leader = leader_of(active);
    const Ref result = output_ref(0, n_);
    if (rank_ != leader) {
      Id sent = builder_.send(leader, mine_, {}, tag_in);
      builder_.recv(leader, result, {mine_ == result ? sent : no_step}, tag_out);
      return;
    }
    const int run = static_cast<int>(part(run_total(), full_, active).count);
    for (int i = 1; i < run; ++i) {
      Ref theirs = builder_.scratch(n_);
      Id got = builder_.recv(leader + i, theirs, {}, tag_in);
      last_ = builder_.reduce(mine_, theirs, result, {got, last_});
      mine_ = result;
    }
    uint32_t tag = tag_out + 1;
    for (int64_t distance = 1; distance < full_; distance *= radix_)
      exchange(active, static_cast<int>(distance), tag++);
    if (mine_ != result) builder_.copy(mine_, result, {last_});
    for (int i = 1; i < run; ++i) builder_.send(leader + i, result, {last_}, tag_out);
  }

 private:
  static constexpr uint32_t tag_in = 0, tag_out = 1;

  uint64_t run_total() const { return static_cast<uint64_t>(nranks_); }
  int leader_of(int active) const {
    return static_cast<int>(part(run_total(), full_, active).offset);
  }

  void exchange(int active, int distance, uint32_t tag) {
    const int digit = active / distance % radix_;
    std::vector<Ref> parts(static_cast<size_t>(radix_));
    std::vector<Id> sends, recvs(static_cast<size_t>(radix_), no_step);
    parts[static_cast<size_t>(digit)] = mine_;
    for (int j = 1; j < radix_; ++j) {
      const int other = (digit + j) % radix_;
      const int peer = leader_of(active + (other - digit) * distance);
      sends.push_back(builder_.send(peer, mine_, {last_}, tag));
      const auto at = static_cast<size_t>(other);
      parts[at] = builder_.scratch(n_);
      recvs[at] = builder_.recv(peer, parts[at], {}, tag);
    }
    // The fold may not touch the output before the sends from it have ended: it runs in scratch.
    Ref sum = parts[0];
    Id folded = recvs[0];
    const Ref work = builder_.scratch(n_);
    for (size_t j = 1; j < parts.size(); ++j) {
      std::vector<Id> after = {recvs[j], folded, last_};
      Ref to = work;
      if (j + 1 == parts.size()) {
        after.insert(after.end(), sends.begin(), sends.end());
        to = output_ref(0, n_);
      }
      folded = builder_.reduce(sum, parts[j], to, std::span<const Id>(after));
      sum = to;
    }
    last_ = folded;
    mine_ = output_ref(0, n_);
  }

  ScheduleBuilder& builder_;
  int nranks_, rank_, radix_;
  int full_ = 1;  // ranks that exchange: a power of the radix
  uint64_t n_;
  Ref mine_;
  Id last_ = no_step;
};

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  Knomial(problem, place, builder).append();
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  const double k = static_cast<double>(params[0]), rounds = s.rounds(k);
  Estimate e;
  s.tree(e, rounds, rounds * (k - 1) * s.bytes, s.near);
  s.handle(e, rounds * (k - 1), rounds * (k - 1));
  e.reduced = rounds * (k - 1) * s.bytes;
  return e;
}

}  // namespace

extern const Algorithm allreduce_knomial{
    "knomial",   "Exchange of whole vectors among groups of k ranks; short messages.",
    collectives, parameters,
    applies,     estimate,
    generate};

}  // namespace tutti
