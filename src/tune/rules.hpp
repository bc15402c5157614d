// Rules: what the user, or a measured table, says about which algorithm does which calls.
//
//   rules   = rule { ";" rule }
//   rule    = scheme { "," parameter "=" value } [ "@" condition { condition } ]
//   condition = range (of bytes) | "nodes=" range | "ranks=" range | "ppn=" range
//   range   = number | [ number ] ".." [ number ]      both ends belong to it
// Sizes take k, m, g. The scheme "below" hands the call to the MPI below. Bytes are of the whole
// vector (allreduce, reduce, bcast, scan, reduce_scatter) or of one block (allgather, alltoall,
// gather, scatter).
//   TUTTI_ALLREDUCE="below @ ..4k; hierarchical,top=ring,chunk=1m @ 1m.. nodes=2.."
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "coll/registry.hpp"

namespace tutti {

struct Range {
  uint64_t least = 0;
  uint64_t most = ~uint64_t{0};
  bool has(uint64_t value) const { return value >= least && value <= most; }
  friend bool operator==(const Range&, const Range&) = default;
};

struct TuneRule {
  Coll coll = Coll::allreduce;
  const Algorithm* algorithm = nullptr;  // nullptr: the MPI below
  Params params;
  Range bytes, nodes, ranks, ppn;  // ppn: most ranks of a node
  std::string text;                // as written
  bool matches(const Agreed& agreed, const Topology& topology) const;
};

// Bytes of a call as rules count them.
uint64_t rule_bytes(const Agreed& agreed, int nranks);

// Logs what is wrong and where; then bad_setting.
Result<std::vector<TuneRule>> parse_rules(Coll coll, std::string_view text);

// A measured table: a line each "<collective> <rule>", '#' begins a comment.
Result<std::vector<TuneRule>> parse_table(std::string_view text);

// "chunk=1m,inner=groups": parameters that differ from the standard.
std::string describe(const Algorithm& algorithm, const Params& params);

}  // namespace tutti
