// Rabenseifner's allreduce: recursive halving reduce-scatter, then recursive doubling allgather.
// Steps 2 log2 P, and 2 more when P is not a power of two; bytes sent a rank 2n(P-1)/P, and 2n more
// for folded ranks. Best for middle and long messages where a ring has too many steps. Source: R.
// Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004. Halving starts with
// the nearest rank, so every part is a run of ranks and operations need not commute.
#include "coll/patterns.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::allreduce};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

// What an active rank holds before each halving and which half it gave away.
struct Level {
  Ref kept, given;  // of the output
  Id given_sent;
};

class Rabenseifner {
 public:
  Rabenseifner(const Problem& problem, const Place& place, ScheduleBuilder& builder)
      : builder_(builder),
        fold_(place.nranks()),
        rank_(place.rank),
        active_(fold_.active_of(place.rank)),
        rounds_(ceil_log2(fold_.power)),
        own_(own_vector(problem.local.in_place, problem.agreed.count)),
        result_(output_ref(0, problem.agreed.count)) {}

  void append() {
    const auto tag = static_cast<uint32_t>(2 * rounds_);
    if (fold_.idle(rank_)) {
      Id sent = builder_.send(rank_ - 1, own_, {}, tag);
      builder_.recv(rank_ - 1, result_, {own_ == result_ ? sent : no_step}, tag + 1);
      return;
    }
    Ref mine = own_;
    if (fold_.folded(rank_)) {
      Ref theirs = builder_.scratch(result_.count);
      Id got = builder_.recv(rank_ + 1, theirs, {}, tag);
      last_ = builder_.reduce(own_, theirs, result_, {got});
      mine = result_;
    }
    halve(mine);
    double_back();
    if (fold_.folded(rank_))
      builder_.send(rank_ + 1, result_, std::span<const Id>(complete_), tag + 1);
  }

 private:
  void halve(Ref mine) {
    Block range{0, result_.count};
    for (int k = 0; k < rounds_; ++k) {
      const int peer = fold_.rank_of(active_ ^ (1 << k));
      const bool keep_low = (active_ >> k & 1) == 0;
      const uint64_t half = range.count / 2;
      const Block low{range.offset, half}, high{range.offset + half, range.count - half};
      const Block kept = keep_low ? low : high, given = keep_low ? high : low;
      const Ref theirs = builder_.scratch(kept.count);
      const auto tag = static_cast<uint32_t>(k);
      Id sent = no_step, got = no_step;
      if (given.count != 0) sent = builder_.send(peer, slice(mine, given), {last_}, tag);
      if (kept.count != 0) got = builder_.recv(peer, theirs, {}, tag);
      // Lower rank, lower half: the peer with bit k set holds the higher ranks' part.
      const Ref part = slice(mine, kept);
      last_ = builder_.reduce(keep_low ? part : theirs, keep_low ? theirs : part,
                              slice(result_, kept), {got, last_});
      levels_.push_back({slice(result_, kept), slice(result_, given), sent});
      mine = result_;
      range = kept;
    }
  }

  void double_back() {
    complete_ = {last_};
    for (int k = rounds_ - 1; k >= 0; --k) {
      const Level& level = levels_[static_cast<size_t>(k)];
      const int peer = fold_.rank_of(active_ ^ (1 << k));
      const auto tag = static_cast<uint32_t>(rounds_ + k);
      if (level.kept.count != 0)
        builder_.send(peer, level.kept, std::span<const Id>(complete_), tag);
      if (level.given.count != 0)
        complete_.push_back(builder_.recv(peer, level.given, {level.given_sent}, tag));
    }
  }

  ScheduleBuilder& builder_;
  Fold fold_;
  int rank_, active_, rounds_;
  Ref own_, result_;
  Id last_ = no_step;
  std::vector<Level> levels_;
  std::vector<Id> complete_;  // steps after which the range held so far is complete
};

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  if (place.nranks() == 1) {
    Ref own = own_vector(problem.local.in_place, problem.agreed.count);
    Ref result = output_ref(0, problem.agreed.count);
    if (own != result) builder.copy(own, result, {});
    return {};
  }
  Rabenseifner(problem, place, builder).append();
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  const double n = s.bytes;
  Estimate e;
  e.near = {2 * s.log_near, 2 * n * (1 - 1 / s.near)};
  e.far = {2 * s.log_far, 2 * n / s.near * (1 - 1 / s.far), s.near};
  if (s.folds) s.add(e, 2, 2 * n);
  e.reduced = (s.folds ? 2 : 1) * n;
  return e;
}

}  // namespace

extern const Algorithm allreduce_rabenseifner{
    "rabenseifner", "Recursive halving, then recursive doubling; middle and long messages.",
    collectives,    {},
    applies,        estimate,
    generate};

}  // namespace tutti
