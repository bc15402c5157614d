// Mutation tests of verify: for each rule the fault is planted in generated schedules and must be
// caught, by that rule.
#include "sched/verify.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "../coll/call.hpp"

namespace tutti {
namespace {

using Schedules = std::vector<Schedule>;

struct Spot {
  size_t rank;
  uint32_t step;
};

Step& at(Schedules& all, Spot spot) {
  return all[spot.rank].steps[spot.step];
}

// All steps that fit, over all ranks.
std::vector<Spot> spots(const Schedules& all,
                        const std::function<bool(const Schedule&, const Step&)>& fits) {
  std::vector<Spot> found;
  for (size_t r = 0; r < all.size(); ++r)
    for (uint32_t i = 0; i < all[r].steps.size(); ++i)
      if (fits(all[r], all[r].steps[i])) found.push_back({r, i});
  return found;
}

uint64_t size_of(const Schedule& s, Space space) {
  return space == Space::input    ? s.input_count
         : space == Space::output ? s.output_count
                                  : s.scratch_count;
}

void set_after(Schedule& s, uint32_t step, const std::vector<uint32_t>& after) {
  s.steps[step].after_begin = static_cast<uint32_t>(s.after.size());
  s.steps[step].after_count = static_cast<uint32_t>(after.size());
  s.after.insert(s.after.end(), after.begin(), after.end());
}

std::vector<uint32_t> after_list(const Schedule& s, uint32_t step) {
  auto span = s.after_of(s.steps[step]);
  return {span.begin(), span.end()};
}

bool reads(const Step& step) {
  return step.kind != StepKind::recv && step.from.count != 0;
}
bool writes(const Step& step) {
  return step.kind != StepKind::send && step.to.count != 0;
}

bool overlap(const Ref& a, const Ref& b) {
  return a.count != 0 && b.count != 0 && a.space == b.space && a.offset < b.offset + b.count &&
         b.offset < a.offset + a.count;
}

bool conflict(const Step& a, const Step& b) {
  auto hits = [](const Step& w, const Step& r) {
    if (!writes(w)) return false;
    return (writes(r) && overlap(w.to, r.to)) || (reads(r) && overlap(w.to, r.from)) ||
           (r.kind == StepKind::reduce && overlap(w.to, r.with));
  };
  return hits(a, b) || hits(b, a);
}

// Whether step `a` comes before `b`, following after lists.
bool before(const Schedule& s, uint32_t a, uint32_t b) {
  std::vector<uint32_t> open = {b};
  std::set<uint32_t> seen;
  while (!open.empty()) {
    uint32_t now = open.back();
    open.pop_back();
    for (uint32_t next : s.after_of(s.steps[now])) {
      if (next == a) return true;
      if (next > a && seen.insert(next).second) open.push_back(next);
    }
  }
  return false;
}

class Mutant {
 public:
  Mutant(const Call& call, Schedules all, uint64_t seed)
      : call(call), all(std::move(all)), random(seed) {}

  // A random spot that fits; false if there is none.
  bool pick(Spot& spot, const std::function<bool(const Schedule&, const Step&)>& fits) {
    std::vector<Spot> found = spots(all, fits);
    if (found.empty()) return false;
    spot = found[random() % found.size()];
    return true;
  }

  const Call& call;
  Schedules all;
  std::mt19937_64 random;
};

// Plants a fault; false where the schedules offer no place for it.
using Plant = bool (*)(Mutant&);

bool after_itself(Mutant& m) {
  Spot spot;
  if (!m.pick(spot, [](const auto&, const Step&) { return true; })) return false;
  set_after(m.all[spot.rank], spot.step, {spot.step});
  return true;
}

bool peer_is_self(Mutant& m) {
  Spot spot;
  if (!m.pick(spot, [](const auto&, const Step& s) { return s.kind == StepKind::send; }))
    return false;
  at(m.all, spot).peer = static_cast<int32_t>(spot.rank);
  return true;
}

bool past_the_end(Mutant& m) {
  Spot spot;
  if (!m.pick(spot, [](const auto&, const Step& s) { return writes(s); })) return false;
  Ref& to = at(m.all, spot).to;
  to.offset = size_of(m.all[spot.rank], to.space) - to.count + 1;
  return true;
}

bool wraps_round(Mutant& m) {
  Spot spot;
  if (!m.pick(spot, [](const auto&, const Step& s) { return reads(s); })) return false;
  at(m.all, spot).from.offset = ~uint64_t{0} - 1;
  return true;
}

bool scratch_too_short(Mutant& m) {
  Spot spot;
  auto fits = [](const Schedule& s, const Step& step) {
    return writes(step) && step.to.space == Space::scratch &&
           step.to.offset + step.to.count == s.scratch_count;
  };
  if (!m.pick(spot, fits)) return false;
  --m.all[spot.rank].scratch_count;
  return true;
}

bool uneven_operands(Mutant& m) {
  Spot spot;
  auto fits = [](const Schedule&, const Step& s) {
    return s.to.count != 0 && (s.kind == StepKind::copy || s.kind == StepKind::reduce);
  };
  if (!m.pick(spot, fits)) return false;
  --at(m.all, spot).from.count;
  return true;
}

bool writes_input(Mutant& m) {
  Spot spot;
  auto fits = [](const Schedule& s, const Step& step) {
    return writes(step) && step.to.count <= s.input_count;
  };
  if (!m.pick(spot, fits)) return false;
  at(m.all, spot).to = {Space::input, 0, at(m.all, spot).to.count};
  return true;
}

bool partly_overlaps(Mutant& m) {
  Spot spot;
  auto fits = [](const Schedule& s, const Step& step) {
    return (step.kind == StepKind::copy || step.kind == StepKind::reduce) && step.to.count > 1 &&
           step.to.offset + step.to.count < size_of(s, step.to.space);
  };
  if (!m.pick(spot, fits)) return false;
  Step& step = at(m.all, spot);
  step.from = step.to;
  ++step.from.offset;
  return true;
}

bool wrong_tag(Mutant& m) {
  Spot spot;
  auto message = [](const Schedule&, const Step& s) {
    return s.kind == StepKind::send || s.kind == StepKind::recv;
  };
  if (!m.pick(spot, message)) return false;
  at(m.all, spot).tag += 77777;
  return true;
}

bool wrong_size(Mutant& m) {
  Spot spot;
  auto fits = [](const auto&, const Step& s) { return s.kind == StepKind::send && s.from.count; };
  if (!m.pick(spot, fits)) return false;
  --at(m.all, spot).from.count;
  return true;
}

bool sent_twice(Mutant& m) {
  Spot spot;
  if (!m.pick(spot, [](const auto&, const Step& s) { return s.kind == StepKind::send; }))
    return false;
  m.all[spot.rank].steps.push_back(at(m.all, spot));
  return true;
}

// Takes away an edge that alone orders two steps on one range.
bool lost_edge(Mutant& m) {
  std::vector<std::pair<Spot, uint32_t>> found;
  for (size_t r = 0; r < m.all.size(); ++r) {
    Schedule& s = m.all[r];
    for (uint32_t j = 0; j < s.steps.size(); ++j)
      for (uint32_t edge : after_list(s, j)) {
        if (!conflict(s.steps[edge], s.steps[j])) continue;
        std::vector<uint32_t> others = after_list(s, j);
        std::erase(others, edge);
        bool other_way = false;
        for (uint32_t other : others) other_way = other_way || before(s, edge, other);
        if (!other_way) found.push_back({{r, j}, edge});
      }
  }
  if (found.empty()) return false;
  auto [spot, edge] = found[m.random() % found.size()];
  std::vector<uint32_t> others = after_list(m.all[spot.rank], spot.step);
  std::erase(others, edge);
  set_after(m.all[spot.rank], spot.step, others);
  return true;
}

// A step that shares a range with an earlier one forgets whom it waits for.
bool lost_list(Mutant& m) {
  std::vector<Spot> found;
  for (size_t r = 0; r < m.all.size(); ++r)
    for (uint32_t j = 0; j < m.all[r].steps.size(); ++j)
      for (uint32_t i = 0; i < j; ++i)
        if (conflict(m.all[r].steps[i], m.all[r].steps[j])) {
          found.push_back({r, j});
          break;
        }
  if (found.empty()) return false;
  Spot spot = found[m.random() % found.size()];
  set_after(m.all[spot.rank], spot.step, {});
  return true;
}

// Two ranks that exchange receive only after their own send has ended.
bool send_before_receive(Mutant& m) {
  auto find = [&](size_t rank, StepKind kind, size_t peer, uint32_t& step) {
    for (step = 0; step < m.all[rank].steps.size(); ++step) {
      const Step& s = m.all[rank].steps[step];
      if (s.kind == kind && s.peer == static_cast<int32_t>(peer)) return true;
    }
    return false;
  };
  for (size_t a = 0; a < m.all.size(); ++a)
    for (size_t b = a + 1; b < m.all.size(); ++b) {
      uint32_t send_a, recv_a, send_b, recv_b;
      if (!find(a, StepKind::send, b, send_a) || !find(a, StepKind::recv, b, recv_a) ||
          !find(b, StepKind::send, a, send_b) || !find(b, StepKind::recv, a, recv_b))
        continue;
      if (m.all[a].steps[send_a].tag != m.all[b].steps[recv_b].tag ||
          m.all[b].steps[send_b].tag != m.all[a].steps[recv_a].tag || send_a > recv_a ||
          send_b > recv_b)
        continue;
      for (auto [rank, send, recv] :
           {std::tuple(a, send_a, recv_a), std::tuple(b, send_b, recv_b)}) {
        std::vector<uint32_t> after = after_list(m.all[rank], recv);
        after.push_back(send);
        set_after(m.all[rank], recv, after);
      }
      return true;
    }
  return false;
}

bool reads_nothing(Mutant& m) {
  Spot spot;
  if (!m.pick(spot, [](const auto&, const Step& s) { return reads(s); })) return false;
  Step& step = at(m.all, spot);
  Schedule& s = m.all[spot.rank];
  step.from = {Space::scratch, s.scratch_count, step.from.count};
  s.scratch_count += step.from.count;
  return true;
}

bool forgets_an_operand(Mutant& m) {
  Spot spot;
  if (!m.pick(spot, [](const auto&, const Step& s) { return s.kind == StepKind::reduce; }))
    return false;
  Step& step = at(m.all, spot);
  step.kind = StepKind::copy;
  if (step.from == step.to) step.from = step.with;
  step.with = {};
  return true;
}

bool adds_twice(Mutant& m) {
  Spot spot;
  if (!m.pick(spot, [](const auto&, const Step& s) { return s.kind == StepKind::reduce; }))
    return false;
  Step& step = at(m.all, spot);
  step.with = step.from;
  return true;
}

bool sends_the_neighbour_element(Mutant& m) {
  Spot spot;
  auto fits = [](const Schedule& s, const Step& step) {
    return step.kind == StepKind::send && step.from.count != 0 && step.from.space == Space::input &&
           step.from.offset + step.from.count < s.input_count;
  };
  if (!m.pick(spot, fits)) return false;
  ++at(m.all, spot).from.offset;
  return true;
}

bool operands_swapped(Mutant& m) {
  Spot spot;
  if (!m.pick(spot, [](const auto&, const Step& s) { return s.kind == StepKind::reduce; }))
    return false;
  std::swap(at(m.all, spot).from, at(m.all, spot).with);
  return true;
}

// Overwrites an element of the output that is no part of the result.
bool writes_a_gap(Mutant& m) {
  for (size_t r = 0; r < m.all.size(); ++r) {
    Schedule& s = m.all[r];
    if (s.input_count == 0) continue;
    std::vector<bool> wanted(s.output_count, false);
    for (const Piece& piece : expectation(m.call.problems(), static_cast<int>(r)))
      for (uint64_t i = 0; i < piece.where.count; ++i) wanted[piece.where.offset + i] = true;
    auto gap = std::find(wanted.begin(), wanted.end(), false);
    if (gap == wanted.end()) continue;
    Step step;
    step.kind = StepKind::copy;
    step.from = {Space::input, 0, 1};
    step.to = {Space::output, static_cast<uint64_t>(gap - wanted.begin()), 1};
    s.steps.push_back(step);
    return true;
  }
  return false;
}

struct Fault {
  const char* name;
  Plant plant;
  std::vector<Rule> rules;  // any of which says what is wrong
  int least;                // mutants that there must be
};

const std::vector<Fault>& faults() {
  static const std::vector<Fault> all = {
      {"after_itself", after_itself, {Rule::form}, 100},
      {"peer_is_self", peer_is_self, {Rule::form}, 100},
      {"past_the_end", past_the_end, {Rule::bounds}, 100},
      {"wraps_round", wraps_round, {Rule::bounds}, 100},
      {"scratch_too_short", scratch_too_short, {Rule::bounds}, 50},
      {"uneven_operands", uneven_operands, {Rule::shape}, 100},
      {"writes_input", writes_input, {Rule::shape}, 100},
      {"partly_overlaps", partly_overlaps, {Rule::shape}, 50},
      {"wrong_tag", wrong_tag, {Rule::message}, 100},
      {"wrong_size", wrong_size, {Rule::message}, 100},
      {"sent_twice", sent_twice, {Rule::message}, 100},
      {"lost_edge", lost_edge, {Rule::race}, 100},
      {"lost_list", lost_list, {Rule::race}, 100},
      {"send_before_receive", send_before_receive, {Rule::deadlock}, 50},
      {"reads_nothing", reads_nothing, {Rule::uninitialized}, 100},
      {"forgets_an_operand",
       forgets_an_operand,
       {Rule::contribution, Rule::order, Rule::uninitialized},
       100},
      {"adds_twice", adds_twice, {Rule::contribution}, 100},
      {"sends_the_neighbour_element", sends_the_neighbour_element, {Rule::contribution}, 20},
      {"operands_swapped", operands_swapped, {Rule::order}, 100},
      {"writes_a_gap", writes_a_gap, {Rule::untouched}, 10},
  };
  return all;
}

class Verify : public testing::TestWithParam<size_t> {};

TEST_P(Verify, CatchesThePlantedFault) {
  const Fault& fault = faults()[GetParam()];
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(text("seed {}", seed));
  int planted = 0;
  uint64_t draw = seed;
  for (const Algorithm* algorithm : algorithms())
    for (Coll coll : algorithm->collectives)
      for (int nranks : {2, 3, 4, 5, 8, 11})
        for (bool commutative : {true, false}) {
          if (!commutative && !reduces(coll)) continue;
          Call call(coll, nranks, 2 * static_cast<uint64_t>(nranks) + 1, commutative, ++draw);
          // Two ranks a node for what needs levels.
          Topology topology = Topology::flat(nranks);
          const Params params = algorithm->standard_params();
          if (!algorithm->applies(call.agreed(), topology, params))
            for (int r = 0; r < nranks; ++r) topology.ranks.push_back({r / 2, -1});
          if (!algorithm->applies(call.agreed(), topology, params)) continue;
          Mutant mutant(call, schedules(*algorithm, call, topology, params), ++draw);
          if (!fault.plant(mutant)) continue;
          ++planted;
          Verdict verdict = verify(call.problems(), mutant.all);
          EXPECT_FALSE(verdict.proven) << algorithm->scheme << " " << call.describe();
          if (verdict.proven) continue;
          EXPECT_TRUE(std::find(fault.rules.begin(), fault.rules.end(), verdict.rule) !=
                      fault.rules.end())
              << algorithm->scheme << " " << call.describe() << ": " << verdict.text;
        }
  EXPECT_GE(planted, fault.least);
  printf("%s: %d planted\n", fault.name, planted);
}

INSTANTIATE_TEST_SUITE_P(Mutation, Verify, testing::Range(size_t{0}, faults().size()),
                         [](const auto& info) { return faults()[info.param].name; });

// Rules whose faults are no change of any algorithm's schedule have tests of their own below, and in
// widen_test.cc.
TEST(Verify, EveryRuleHasAPlantedFault) {
  std::set<Rule> planted = {Rule::same_bits, Rule::barrier, Rule::group, Rule::precision,
                            Rule::placement};
  for (const Fault& fault : faults())
    if (fault.rules.size() == 1) planted.insert(fault.rules[0]);
  for (size_t rule = 0; rule < rule_count; ++rule)
    EXPECT_TRUE(planted.count(static_cast<Rule>(rule))) << name(static_cast<Rule>(rule));
}

TEST(Verify, ParallelOrderIsNoOrderForNonCommutativeOperations) {
  // A ring reduces round the end: fine for a sum, wrong for an ordered operation.
  Call sum(Coll::allreduce, 5, 20, true, 1), ordered(Coll::allreduce, 5, 20, false, 1);
  Topology topology;
  topology.nranks = 5;
  const Algorithm& ring = *find_algorithm(Coll::allreduce, "ring");
  Schedules all = schedules(ring, sum, topology, ring.standard_params());
  EXPECT_TRUE(verify(sum.problems(), all).proven);
  EXPECT_EQ(verify(ordered.problems(), all).rule, Rule::order);
}

// Everyone sends everyone its vector; each rank folds as it is told.
Schedules flat_allreduce(int nranks, uint64_t n, bool alike) {
  Schedules all(static_cast<size_t>(nranks));
  for (int r = 0; r < nranks; ++r) {
    Schedule& s = all[static_cast<size_t>(r)];
    s.input_count = s.output_count = n;
    ScheduleBuilder b(s, r, nranks);
    std::vector<Ref> parts;
    std::vector<ScheduleBuilder::Id> after;
    for (int peer = 0; peer < nranks; ++peer) {
      parts.push_back({Space::input, 0, n});
      if (peer == r) continue;
      b.send(peer, parts.back(), {});
      parts.back() = b.scratch(n);
      after.push_back(b.recv(peer, parts.back(), {}));
    }
    const Ref result{Space::output, 0, n}, work = b.scratch(n);
    if (alike || r != 1) {  // ((0 1) 2)
      auto id = b.reduce(parts[0], parts[1], work, std::span(after));
      b.reduce(work, parts[2], result, {id});
    } else {  // (0 (1 2))
      auto id = b.reduce(parts[1], parts[2], work, std::span(after));
      b.reduce(parts[0], work, result, {id});
    }
  }
  return all;
}

std::vector<Problem> plain_problems(Coll coll, int nranks, uint64_t n) {
  Problem problem;
  problem.agreed.coll = coll;
  problem.agreed.count = n;
  problem.agreed.dtype = Dtype::f32;
  return std::vector<Problem>(static_cast<size_t>(nranks), problem);
}

TEST(Verify, CatchesAnotherBracketOnOneRank) {
  std::vector<Problem> problems = plain_problems(Coll::allreduce, 3, 4);
  EXPECT_TRUE(verify(problems, flat_allreduce(3, 4, true)).proven);
  EXPECT_EQ(verify(problems, flat_allreduce(3, 4, false)).rule, Rule::same_bits);
}

TEST(Verify, CatchesABarrierThatDoesNotWait) {
  for (int nranks : {4, 8, 16}) {
    Call call(Coll::barrier, nranks, 0, true, 1);
    Topology topology;
    topology.nranks = nranks;
    const Algorithm& algorithm = *find_algorithm(Coll::barrier, "dissemination");
    Schedules all = schedules(algorithm, call, topology, {});
    ASSERT_TRUE(verify(call.problems(), all).proven);
    for (uint32_t i = 2; i < all[1].steps.size(); ++i) {
      Schedules mutant = all;
      if (mutant[1].steps[i].kind == StepKind::send) {
        set_after(mutant[1], i, {});
        EXPECT_EQ(verify(call.problems(), mutant).rule, Rule::barrier);
      }
    }
    for (Schedule& s : all) s.steps.clear();
    EXPECT_EQ(verify(call.problems(), all).rule, Rule::barrier);
  }
}

// Two nodes of two: reduce-scatter in the node, exchange between nodes, allgather in the node.
Schedules grouped_allreduce(uint64_t n) {
  Schedules all(4);
  for (int r = 0; r < 4; ++r) {
    Schedule& s = all[static_cast<size_t>(r)];
    s.input_count = s.output_count = n;
    ScheduleBuilder b(s, r, 4);
    const int node = r / 2, local = r % 2;
    const uint64_t half = n / 2, own = local == 0 ? half : n - half;
    const Ref part{Space::output, local == 0 ? 0 : half, own};
    Group scatter{
        .coll = Coll::reduce_scatter, .level = Level::nvlink, .members = {2 * node, 2 * node + 1}};
    Group gather = scatter;
    gather.coll = Coll::allgather;
    scatter.counts = gather.counts = {half, n - half};
    auto reduced = b.group(scatter, {Space::input, 0, n}, part, {});
    const Ref theirs = b.scratch(own);
    const int peer = r ^ 2;
    auto sent = b.send(peer, part, {reduced});
    auto got = b.recv(peer, theirs, {});
    const bool lower = node == 1;
    auto sum = b.reduce(lower ? theirs : part, lower ? part : theirs, part, {sent, got});
    b.group(gather, part, {Space::output, 0, n}, std::vector<uint32_t>{sum});
  }
  return all;
}

TEST(Verify, TakesAGroupStepByItsContract) {
  std::vector<Problem> problems = plain_problems(Coll::allreduce, 4, 7);
  Verdict verdict = verify(problems, grouped_allreduce(7));
  EXPECT_TRUE(verdict.proven) << verdict.text;
}

TEST(Verify, CatchesBrokenGroupContracts) {
  std::vector<Problem> problems = plain_problems(Coll::allreduce, 4, 8);
  auto rule_of = [&](const std::function<void(Schedules&)>& plant) {
    Schedules all = grouped_allreduce(8);
    plant(all);
    return verify(problems, all).rule;
  };
  // A member never enters.
  EXPECT_EQ(rule_of([](Schedules& all) { all[1].steps.pop_back(); }), Rule::group);
  // Members name different contracts.
  EXPECT_EQ(rule_of([](Schedules& all) { all[1].groups[0].lane_bytes = 1; }), Rule::group);
  // A tag of its own.
  EXPECT_EQ(rule_of([](Schedules& all) { all[2].steps[0].tag = 9; }), Rule::group);
  // No such group.
  EXPECT_EQ(rule_of([](Schedules& all) { all[2].steps[0].peer = 5; }), Rule::group);
  // Parts do not fill the whole.
  EXPECT_EQ(rule_of([](Schedules& all) { --all[3].steps[0].to.count; }), Rule::group);
  // The sizes that all were told are not those of the steps.
  EXPECT_EQ(rule_of([](Schedules& all) {
              for (Schedule& s : all) s.groups[0].counts = {5, 3};
            }),
            Rule::group);
  // A part lies in the whole, but in another member's place.
  EXPECT_EQ(rule_of([](Schedules& all) { all[0].steps.back().from.offset = 4; }), Rule::shape);
}

// Two ranks, halves of the vector by two group steps, one after the other.
Schedules two_groups(const std::vector<int32_t>& members) {
  Schedules all(2);
  for (int r = 0; r < 2; ++r) {
    Schedule& s = all[static_cast<size_t>(r)];
    s.input_count = s.output_count = 8;
    ScheduleBuilder b(s, r, 2);
    const Group group{.coll = Coll::allreduce, .level = Level::nvlink, .members = members};
    auto id = b.group(group, {Space::input, 0, 4}, {Space::output, 0, 4}, {}, 0);
    b.group(group, {Space::input, 4, 4}, {Space::output, 4, 4}, std::vector<uint32_t>{id}, 1);
  }
  return all;
}

TEST(Verify, CatchesGroupsInOppositeOrder) {
  std::vector<Problem> problems = plain_problems(Coll::allreduce, 2, 8);
  Schedules all = two_groups({0, 1});
  ASSERT_TRUE(verify(problems, all).proven);
  std::swap(all[1].steps[0].tag, all[1].steps[1].tag);
  std::swap(all[1].steps[0].from, all[1].steps[1].from);
  std::swap(all[1].steps[0].to, all[1].steps[1].to);
  EXPECT_EQ(verify(problems, all).rule, Rule::deadlock);
}

TEST(Verify, CatchesAGroupThatReducesInAnotherOrder) {
  std::vector<Problem> problems = plain_problems(Coll::allreduce, 2, 8);
  EXPECT_EQ(verify(problems, two_groups({1, 0})).rule, Rule::order);
}

}  // namespace
}  // namespace tutti
