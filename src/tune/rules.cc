#include "tune/rules.hpp"

#include <algorithm>
#include <charconv>

#include "base/log.hpp"

namespace tutti {

namespace {

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

// Takes the text before `mark` off `rest`.
std::string_view take(std::string_view& rest, std::string_view mark) {
  const size_t at = rest.find(mark);
  std::string_view head = rest.substr(0, at);
  rest = at == std::string_view::npos ? std::string_view() : rest.substr(at + mark.size());
  return trim(head);
}

bool parse_number(std::string_view text, uint64_t& value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  if (unit.empty()) return true;
  const size_t power = std::string_view("kmgKMG").find(unit);
  if (unit.size() != 1 || power == std::string_view::npos) return false;
  const int shift = 10 * static_cast<int>(power % 3 + 1);
  if (value > ~uint64_t{0} >> shift) return false;
  value <<= shift;
  return true;
}

bool parse_range(std::string_view text, Range& range) {
  const size_t dots = text.find("..");
  if (dots == std::string_view::npos) {
    if (!parse_number(text, range.least)) return false;
    range.most = range.least;
    return true;
  }
  std::string_view low = text.substr(0, dots), high = text.substr(dots + 2);
  if (low.empty() && high.empty()) return false;
  if (!low.empty() && !parse_number(low, range.least)) return false;
  if (!high.empty() && !parse_number(high, range.most)) return false;
  return range.least <= range.most;
}

size_t letters_apart(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t corner = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t swap = corner + (a[i - 1] == b[j - 1] ? 0 : 1);
      corner = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, swap});
    }
  }
  return row[b.size()];
}

// Schemes of a collective, the one most like `name` first.
std::string schemes(Coll coll, std::string_view name) {
  std::vector<std::string> all = {"below"};
  for (const Algorithm* algorithm : algorithms())
    if (algorithm->serves(coll)) all.emplace_back(algorithm->scheme);
  std::stable_sort(all.begin(), all.end(), [&](const std::string& a, const std::string& b) {
    return letters_apart(a, name) < letters_apart(b, name);
  });
  std::string list;
  for (const std::string& scheme : all) list += (list.empty() ? "" : ", ") + scheme;
  return list;
}

Status refuse(Coll coll, std::string_view rule, const std::string& why) {
  TUTTI_ERROR("tune", "rule \"{}\" of {}: {}", rule, name(coll), why);
  return Code::bad_setting;
}

bool parse_value(const Param& param, std::string_view text, uint64_t& value) {
  if (param.unit == Param::Unit::choice) {
    std::string_view rest = param.choices;
    for (value = 0; !rest.empty(); ++value)
      if (take(rest, "|") == text) return true;
    return false;
  }
  return parse_number(text, value) && value >= param.least && value <= param.most;
}

std::string accepts(const Param& param) {
  if (param.unit == Param::Unit::choice) return text("one of {}", param.choices);
  return text("{} to {}", param.least, param.most);
}

Status parse_parameter(TuneRule& rule, std::string_view word) {
  std::string_view value = word;
  const std::string_view key = take(value, "=");
  if (rule.algorithm == nullptr) return refuse(rule.coll, rule.text, "\"below\" has no parameters");
  const auto& known = rule.algorithm->parameters;
  for (size_t i = 0; i < known.size(); ++i) {
    if (key != known[i].name) continue;
    if (parse_value(known[i], trim(value), rule.params.values[i])) return {};
    return refuse(rule.coll, rule.text,
                  text("{} takes {}, not \"{}\"", key, accepts(known[i]), trim(value)));
  }
  std::string names;
  for (const Param& param : known) names += (names.empty() ? "" : ", ") + std::string(param.name);
  return refuse(rule.coll, rule.text,
                text("{} has no parameter \"{}\"; it has {}", rule.algorithm->scheme, key,
                     names.empty() ? "none" : names));
}

Status parse_condition(TuneRule& rule, std::string_view word) {
  struct Key {
    std::string_view prefix;
    Range TuneRule::*range;
  };
  constexpr Key keys[] = {{"nodes=", &TuneRule::nodes},
                          {"ranks=", &TuneRule::ranks},
                          {"ppn=", &TuneRule::ppn},
                          {"", &TuneRule::bytes}};
  for (const Key& key : keys) {
    if (word.substr(0, key.prefix.size()) != key.prefix) continue;
    if (parse_range(word.substr(key.prefix.size()), rule.*key.range)) return {};
    break;
  }
  return refuse(
      rule.coll, rule.text,
      text("\"{}\" is no condition; they are as 4k..1m, nodes=2.., ranks=..64, ppn=8", word));
}

Status parse_rule(TuneRule& rule) {
  std::string_view conditions = rule.text;
  std::string_view head = take(conditions, "@");
  const bool has_conditions = rule.text.find('@') != std::string::npos;
  if (!head.empty() && head.back() == ',')
    return refuse(rule.coll, rule.text, "a parameter is missing after the last comma");
  const std::string_view scheme = take(head, ",");
  if (scheme != "below") {
    rule.algorithm = find_algorithm(rule.coll, scheme);
    if (rule.algorithm == nullptr)
      return refuse(rule.coll, rule.text,
                    text("no algorithm \"{}\"; there are {}", scheme, schemes(rule.coll, scheme)));
    rule.params = rule.algorithm->standard_params();
  }
  while (!head.empty()) TUTTI_TRY(parse_parameter(rule, take(head, ",")));
  conditions = trim(conditions);
  if (has_conditions && conditions.empty())
    return refuse(rule.coll, rule.text, "nothing follows @");
  while (!conditions.empty()) {
    TUTTI_TRY(parse_condition(rule, take(conditions, " ")));
    conditions = trim(conditions);
  }
  return {};
}

}  // namespace

uint64_t rule_bytes(const Agreed& agreed, int nranks) {
  const uint64_t extent = info(agreed.dtype).extent;
  const bool vector_of_blocks =
      agreed.coll == Coll::reduce_scatter || agreed.coll == Coll::reduce_scatter_block;
  if (vector_of_blocks) return agreed_total(agreed, nranks) * extent;
  if (!agreed.counts.empty())
    return agreed_total(agreed, nranks) / static_cast<uint64_t>(nranks) * extent;
  return agreed.count * extent;
}

bool TuneRule::matches(const Agreed& agreed, const Topology& topology) const {
  if (agreed.coll != coll || !bytes.has(rule_bytes(agreed, topology.nranks)) ||
      !ranks.has(static_cast<uint64_t>(topology.nranks)))
    return false;
  if (nodes == Range{} && ppn == Range{}) return true;
  const auto by_node = topology.ranks_by_node();
  size_t most = 0;
  for (const auto& node : by_node) most = std::max(most, node.size());
  return nodes.has(by_node.size()) && ppn.has(most);
}

Result<std::vector<TuneRule>> parse_rules(Coll coll, std::string_view rules_text) {
  std::vector<TuneRule> rules;
  while (!trim(rules_text).empty()) {
    TuneRule rule;
    rule.coll = coll;
    rule.text = take(rules_text, ";");
    if (rule.text.empty()) continue;
    TUTTI_TRY(parse_rule(rule));
    rules.push_back(std::move(rule));
  }
  return rules;
}

Result<std::vector<TuneRule>> parse_table(std::string_view table_text) {
  std::vector<TuneRule> rows;
  while (!table_text.empty()) {
    std::string_view line = take(table_text, "\n");
    line = trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    TuneRule row;
    const std::string_view coll = take(line, " ");
    const auto found = find_coll(coll);
    if (!found) {
      TUTTI_ERROR("tune", "table row \"{} {}\": no collective \"{}\"", coll, line, coll);
      return Code::bad_setting;
    }
    row.coll = *found;
    row.text = trim(line);
    TUTTI_TRY(parse_rule(row));
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string describe(const Algorithm& algorithm, const Params& params) {
  std::string out;
  for (size_t i = 0; i < algorithm.parameters.size(); ++i) {
    const Param& param = algorithm.parameters[i];
    uint64_t value = params[i];
    if (value == param.standard) continue;
    std::string shown = text("{}", value);
    if (param.unit == Param::Unit::choice) {
      std::string_view rest = param.choices, choice;
      for (uint64_t k = 0; k <= value; ++k) choice = take(rest, "|");
      shown = choice;
    } else if (param.unit == Param::Unit::bytes) {
      for (const char* unit = "kmg"; value != 0 && value % 1024 == 0 && *unit != 0; ++unit) {
        value /= 1024;
        shown = text("{}{}", value, *unit);
      }
    }
    out += text("{}{}={}", out.empty() ? "" : ",", param.name, shown);
  }
  return out;
}

}  // namespace tutti
