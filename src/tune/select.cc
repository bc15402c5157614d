#include "tune/select.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "coll/in_network.hpp"

namespace tutti {

namespace {

bool does(const Choice& choice, const Agreed& agreed, const Topology& topology, bool switches) {
  if (choice.algorithm == nullptr) return true;
  if (!switches && uses_switches(*choice.algorithm, choice.params)) return false;
  return choice.algorithm->applies(agreed, topology, choice.params);
}

// First rule that matches and can do the call; those that cannot go to `passed_by`.
const TuneRule* first_match(std::span<const TuneRule> rules, const Agreed& agreed,
                            const Topology& topology, bool switches,
                            std::vector<std::string>* passed_by) {
  for (const TuneRule& rule : rules) {
    if (!rule.matches(agreed, topology)) continue;
    if (does({rule.algorithm, rule.params}, agreed, topology, switches)) return &rule;
    if (passed_by != nullptr) passed_by->push_back(rule.text);
  }
  return nullptr;
}

}  // namespace

std::vector<Params> worthwhile(const Algorithm& algorithm, bool groups, bool switches) {
  if (is_in_network(algorithm) && !switches) return {};
  std::vector<Params> all = {algorithm.standard_params()};
  for (size_t i = 0; i < algorithm.parameters.size(); ++i) {
    const Param& param = algorithm.parameters[i];
    if (param.unit != Param::Unit::choice) continue;
    const bool inner = std::string_view(param.name) == "inner";
    std::vector<Params> next;
    for (const Params& params : all)
      for (uint64_t v = param.least; v <= (inner && !groups ? param.standard : param.most); ++v) {
        Params more = params;
        more.values[i] = v;
        if (switches || !uses_switches(algorithm, more)) next.push_back(more);
      }
    all = next;
  }
  // Every value of `more` beside the standard one.
  const auto also = [&](std::string_view parameter, std::initializer_list<uint64_t> more) {
    const std::vector<Params> base = all;
    for (size_t i = 0; i < algorithm.parameters.size(); ++i)
      if (parameter == algorithm.parameters[i].name)
        for (Params params : base)
          for (uint64_t value : more) {
            params.values[i] = value;
            if (value != algorithm.parameters[i].standard) all.push_back(params);
          }
  };
  if (std::string_view(algorithm.scheme) != "hierarchical") return all;
  // One slice saves messages, many spread the bytes. Short chunks overlap the levels, long ones save
  // messages.
  also("rails", {0, 1});
  also("chunk", {4 << 20, 16 << 20, 64 << 20, uint64_t{1} << 40});
  return all;
}

namespace {

std::vector<Candidate> candidates(const Agreed& agreed, const Topology& topology,
                                  const Tuning& tuning) {
  const CostModel& model = tuning.model != nullptr ? *tuning.model : cost_models()[0];
  const Scale scale(agreed, topology);
  // What no switch does is not worth a line of an explanation.
  const bool switches = tuning.switches && topology.sharp != 0;
  std::vector<Candidate> all;
  for (const Algorithm* algorithm : algorithms()) {
    if (!algorithm->serves(agreed.coll)) continue;
    for (const Params& params : worthwhile(*algorithm, tuning.groups, switches)) {
      Candidate candidate{{algorithm, params}, algorithm->applies(agreed, topology, params), 0};
      if (candidate.applies)
        candidate.cost_ns = cost_ns(algorithm->estimate(agreed, scale, params), scale, model);
      candidate.applies = candidate.applies && candidate.cost_ns != ~uint64_t{0};
      all.push_back(candidate);
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return std::pair(!a.applies, a.cost_ns) < std::pair(!b.applies, b.cost_ns);
  });
  return all;
}

}  // namespace

Explanation explain(const Agreed& agreed, const Topology& topology, const Tuning& tuning) {
  Explanation e;
  e.candidates = candidates(agreed, topology, tuning);
  if (const TuneRule* rule =
          first_match(tuning.rules, agreed, topology, tuning.switches, &e.passed_by)) {
    e.by = DecidedBy::rule;
    e.rule = rule->text;
    e.choice = {rule->algorithm, rule->params};
  } else if (const TuneRule* row =
                 first_match(tuning.table, agreed, topology, tuning.switches, &e.passed_by)) {
    e.by = DecidedBy::table;
    e.rule = row->text;
    e.choice = {row->algorithm, row->params};
  } else if (tuning.measured_only) {
    e.by = DecidedBy::unmeasured;
  } else if (!e.candidates.empty() && e.candidates[0].applies) {
    e.by = DecidedBy::cost;
    e.choice = e.candidates[0].choice;
  }
  return e;
}

Choice select(const Agreed& agreed, const Topology& topology, const Tuning& tuning) {
  if (const TuneRule* rule = first_match(tuning.rules, agreed, topology, tuning.switches, nullptr))
    return {rule->algorithm, rule->params};
  if (const TuneRule* row = first_match(tuning.table, agreed, topology, tuning.switches, nullptr))
    return {row->algorithm, row->params};
  if (tuning.measured_only) return {};
  const std::vector<Candidate> all = candidates(agreed, topology, tuning);
  return all.empty() || !all[0].applies ? Choice{} : all[0].choice;
}

bool may_choose(Coll coll, const Tuning& tuning) {
  const auto names = [coll](const TuneRule& rule) {
    return rule.coll == coll && rule.algorithm != nullptr;
  };
  return !tuning.measured_only || std::ranges::any_of(tuning.rules, names) ||
         std::ranges::any_of(tuning.table, names);
}

std::string print(const Explanation& e) {
  auto named = [](const Choice& choice) -> std::string {
    if (choice.algorithm == nullptr) return "the MPI below";
    const std::string params = describe(*choice.algorithm, choice.params);
    return choice.algorithm->scheme + (params.empty() ? "" : "," + params);
  };
  std::string out = text("{:>14}  algorithm\n", "cost");
  for (const Candidate& c : e.candidates)
    out += c.applies
               ? text("{:>11} us  {}\n", text("{}.{:02}", c.cost_ns / 1000, c.cost_ns / 10 % 100),
                      named(c.choice))
               : text("{:>14}  {}\n", "cannot do it", named(c.choice));
  for (const std::string& rule : e.passed_by) out += text("passed by, cannot do it: {}\n", rule);
  constexpr const char* by[] = {"rule", "table row", "least cost", "no algorithm applies",
                                "nothing: it was not measured"};
  out += text("chosen: {}, by {}", named(e.choice), by[static_cast<size_t>(e.by)]);
  if (!e.rule.empty()) out += text(" \"{}\"", e.rule);
  return out + "\n";
}

}  // namespace tutti
