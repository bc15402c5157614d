// Registry: every algorithm, found by collective and scheme.
//
// An algorithm is one file src/coll/<collective>_<scheme>.cc that defines one const Algorithm of
// the file's name. The table is generated from file names, sorted, so that ties are fixed.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.hpp"
#include "coll/estimate.hpp"
#include "core/problem.hpp"
#include "sched/contract.hpp"
#include "sched/schedule.hpp"
#include "topo/topology.hpp"

namespace tutti {

// A parameter of an algorithm, set in a rule ("ring,chunk=1m").
struct Param {
  enum class Unit : uint8_t { number, bytes, choice };
  const char* name;
  Unit unit;
  uint64_t standard;
  uint64_t least;
  uint64_t most;
  const char* doc;
  // Of a choice: names of values 0, 1, ..., set off by '|'.
  const char* choices = "";
};

// Values in the order of Algorithm::parameters.
struct Params {
  static constexpr size_t limit = 4;
  std::array<uint64_t, limit> values{};
  uint64_t operator[](size_t at) const { return values[at]; }
  friend bool operator==(const Params&, const Params&) = default;
};

// What `generate` sees beside the problem.
struct Place {
  int rank;
  const Topology& topology;
  const Params& params;
  int nranks() const { return topology.nranks; }
};

struct Algorithm {
  const char* scheme;
  const char* doc;
  std::span<const Coll> collectives;
  std::span<const Param> parameters;
  // Whether it does the call at all, from facts equal on all ranks.
  bool (*applies)(const Agreed& agreed, const Topology& topology, const Params& params);
  // Cost in closed form, equal on all ranks.
  Estimate (*estimate)(const Agreed& agreed, const Scale& scale, const Params& params);
  // Appends this rank's steps. Which messages are sent depends on agreed facts alone (alltoallv: on
  // sizes that both ends know).
  Status (*generate)(const Problem& problem, const Place& place, ScheduleBuilder& builder);

  bool serves(Coll coll) const {
    for (Coll each : collectives)
      if (each == coll) return true;
    return false;
  }
  Params standard_params() const {
    Params params;
    for (size_t i = 0; i < parameters.size(); ++i) params.values[i] = parameters[i].standard;
    return params;
  }
};

// All algorithms in the order of their files' names.
std::span<const Algorithm* const> algorithms();
const Algorithm* find_algorithm(Coll coll, std::string_view scheme);

// The whole schedule of one rank: sizes, then the algorithm's steps, widened if that is agreed, and
// staged where a buffer is on a device. `out` is replaced; its memory is used again.
Status generate(const Algorithm& algorithm, const Problem& problem, const Place& place,
                Schedule& out);

}  // namespace tutti
