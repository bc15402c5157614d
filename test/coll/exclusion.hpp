// Why an algorithm leaves a call out, told from the call and the shape alone: what the proofs leave out is
// listed with its reason and counted, and nothing is left out without one.
#pragma once

#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "base/text.hpp"
#include "coll/registry.hpp"

namespace tutti {

// Whether ranks that share something at each level follow each other without a gap.
inline bool in_runs(const Topology& topology, bool units_only) {
  using Key = std::tuple<int, int, int>;
  const auto is_run = [&](auto&& key_of) {
    std::set<Key> seen;
    Key last{-2, 0, 0};
    for (int r = 0; r < topology.nranks; ++r) {
      const Key key = key_of(r);
      if (key != last && !seen.insert(key).second) return false;
      last = key;
    }
    return true;
  };
  if (units_only) {
    std::map<int, int> unit_of;
    const auto units = topology.units();
    for (size_t u = 0; u < units.size(); ++u)
      for (int r : units[u]) unit_of[r] = static_cast<int>(u);
    return is_run([&](int r) { return Key{unit_of[r], 0, 0}; });
  }
  return is_run([&](int r) {
           return Key{topology.node_of(r), 0, 0};
         }) &&
         is_run([&](int r) {
           return topology.nvlink_of(r) < 0 ? Key{-1, r, 0} : Key{0, topology.nvlink_of(r), 0};
         }) &&
         is_run([&](int r) {
           return topology.gpu_of(r) < 0 ? Key{-1, r, 0}
                                         : Key{0, topology.node_of(r), topology.gpu_of(r)};
         });
}

// Empty: the algorithm must do the call.
inline std::string reason_to_exclude(const Algorithm& algorithm, const Agreed& agreed,
                                     const Topology& topology, const Params& params) {
  const bool ordered = reduces(agreed.coll) && !agreed.commutative && agreed.op == Op::user;
  const auto unordered = [](std::string_view scheme) {
    return scheme == "ring" || scheme == "halving" || scheme == "pat" || scheme == "in_network";
  };
  const std::string_view scheme = algorithm.scheme;
  // The calls of these tests: sums of fp32, those of the program, and barriers.
  const auto no_switches = [&] {
    return topology.sharp == 0                         ? "no switch of the fabric computes"
           : topology.units().size() == 1              ? "the fabric joins nothing"
           : topology.sharp == 1 && agreed.count > 512 ? "the switches hold less at once"
                                                       : "";
  };
  if (scheme == "in_network" && *no_switches() != 0) return no_switches();
  if (scheme == "in_network" && agreed.op == Op::user)
    return "switches do no operation of a program";
  if (scheme == "in_network" && topology.units().size() != static_cast<size_t>(topology.nranks))
    return "several ranks a node";
  if (scheme != "hierarchical")
    return ordered && unordered(scheme) ? "the operation does not commute" : "";
  const bool vector = agreed.coll == Coll::allreduce || agreed.coll == Coll::reduce ||
                      agreed.coll == Coll::bcast || agreed.coll == Coll::barrier;
  bool company = false;
  for (const auto& unit : topology.units()) company = company || unit.size() > 1;
  if (!company) return "no two ranks share anything but the fabric";
  if (!vector && topology.units().size() == 1) return "the fabric joins nothing";
  const bool scans = agreed.coll == Coll::scan || agreed.coll == Coll::exscan;
  if ((ordered || scans) && !in_runs(topology, !vector)) return "units are no runs of ranks";
  for (size_t i = 0; i < algorithm.parameters.size(); ++i) {
    const Param& param = algorithm.parameters[i];
    if (std::string_view(param.name) != "top") continue;
    std::string_view names = param.choices;
    for (uint64_t skip = params[i]; skip > 0; --skip) names.remove_prefix(names.find('|') + 1);
    const bool in_network = names.substr(0, names.find('|')) == "in_network";
    if (in_network && *no_switches() != 0) return no_switches();
    if (ordered && unordered(names.substr(0, names.find('|'))))
      return text("the operation does not commute and the top is {}",
                  names.substr(0, names.find('|')));
  }
  return "";
}

// Counts proofs and what was left out, by reason and shape.
class Tally {
 public:
  void prove() { ++proven_; }
  // `shape`: "P=7", "node:2 gpu:4".
  void exclude(const std::string& reason, const std::string& shape) {
    ++excluded_;
    ++reasons_[reason][shape];
  }
  uint64_t proven() const { return proven_; }
  uint64_t excluded() const { return excluded_; }
  void print(const char* coll, const char* scheme) const {
    std::string out = text("{} {}: {} proven, {} excluded\n", coll, scheme, proven_, excluded_);
    for (const auto& [reason, shapes] : reasons_) {
      uint64_t all = 0;
      std::string list;
      for (const auto& [shape, count] : shapes) {
        all += count;
        list += text("{}{} x {}", list.empty() ? "" : "; ", shape, count);
      }
      out += text("  {} excluded, {}: {}\n", all, reason, list);
    }
    std::fputs(out.c_str(), stdout);
  }

 private:
  uint64_t proven_ = 0, excluded_ = 0;
  std::map<std::string, std::map<std::string, uint64_t>> reasons_;
};

}  // namespace tutti
