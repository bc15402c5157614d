// Select: which algorithm does a call. A pure function of facts equal on all ranks, so all choose
// alike.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "coll/registry.hpp"
#include "tune/cost.hpp"
#include "tune/rules.hpp"

namespace tutti {

struct Tuning {
  std::span<const TuneRule>
      rules{};  // the user's: the first that matches and can do the call decides
  std::span<const TuneRule> table{};  // measured rows, likewise, where no rule does
  const CostModel* model = nullptr;   // where no row does either; nullptr: the first shipped one
  // Whether units of a hierarchy can work by group steps here.
  bool groups = false;
  // Whether something here can run group steps of the fabric's switches. Nothing in the library does: only
  // tools that tell what would be set it. Rules that name such algorithms are passed by without it.
  bool switches = false;
  // Where neither decides the MPI below does the call: what nobody measured may be slower (law 6).
  bool measured_only = false;
};

struct Choice {
  const Algorithm* algorithm = nullptr;  // nullptr: the MPI below
  Params params;
};

enum class DecidedBy : uint8_t { rule, table, cost, nothing, unmeasured };

struct Candidate {
  Choice choice;
  bool applies = true;
  uint64_t cost_ns = 0;
};

// What select considered and why it chose: a value, for tutti-info and logs.
struct Explanation {
  Choice choice;
  DecidedBy by = DecidedBy::nothing;
  std::string rule;                    // that decided
  std::vector<std::string> passed_by;  // rules and rows that match but cannot do the call
  std::vector<Candidate> candidates;   // cheapest first; ties in the registry's order
};

// Parameters of an algorithm worth a look: the standard ones with every value of the choices, and of
// compositions some numbers of rails and lengths of chunks. Group steps only where they can work.
std::vector<Params> worthwhile(const Algorithm& algorithm, bool groups, bool switches);

// By cost, the cheapest; among equals the first in the registry, then the least parameters.
Choice select(const Agreed& agreed, const Topology& topology, const Tuning& tuning);
// Whether any call of that collective may be native by that tuning.
bool may_choose(Coll coll, const Tuning& tuning);
Explanation explain(const Agreed& agreed, const Topology& topology, const Tuning& tuning);
std::string print(const Explanation& explanation);

}  // namespace tutti
