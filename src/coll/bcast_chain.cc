// Pipelined chain broadcast: chunks go from rank to rank down the chain that starts at the root.
// Steps P - 2 + chunks; bytes sent a rank n. Best for very long messages on few ranks.
// Source: J. Pjesivac-Grbovic et al., "Performance analysis of MPI collective operations", Cluster
// Computing 10(2), 2007.
#include "coll/patterns.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::bcast};
constexpr Param parameters[] = {
    {"chunk", Param::Unit::bytes, 128 << 10, 1, uint64_t{1} << 40,
     "Largest piece that one step moves; a message is cut into 512 pieces at most."}};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  const int nranks = place.nranks(), rank = place.rank;
  const int v = mod(rank - problem.agreed.root, nranks);
  const Ref all = output_ref(0, problem.agreed.count);
  const Pieces cuts = pieces(all.count, place.params[0], info(problem.agreed.dtype).extent, 512);
  for (uint64_t p = 0; p < cuts.count; ++p) {
    const Ref piece = cut(all, cuts.size, p);
    Id got = no_step;
    if (v > 0) got = builder.recv(mod(rank - 1, nranks), piece, {}, static_cast<uint32_t>(p));
    if (v + 1 < nranks) builder.send(mod(rank + 1, nranks), piece, {got}, static_cast<uint32_t>(p));
  }
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  const double chunks = s.chunks(s.bytes, params[0], 512), hops = std::max(s.ranks - 2, 0.0);
  Estimate e;
  s.ring(e, hops + chunks, s.bytes + hops * s.bytes / chunks);
  return e;
}

}  // namespace

extern const Algorithm bcast_chain{"chain",     "Chunks down a chain of ranks; very long messages.",
                                   collectives, parameters,
                                   applies,     estimate,
                                   generate};

}  // namespace tutti
