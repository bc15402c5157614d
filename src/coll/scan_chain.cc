// Pipelined chain scan and exscan: chunks go up the ranks, and every rank adds its part.
// Steps P - 1 + chunks; bytes sent a rank n. Best for long messages on few ranks.
// Source: P. Sanders, J. L. Traeff, "Parallel prefix (scan) algorithms for MPI", EuroPVM/MPI 2006.
#include "coll/patterns.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::scan, Coll::exscan};
constexpr Param parameters[] = {
    {"chunk", Param::Unit::bytes, 128 << 10, 1, uint64_t{1} << 40,
     "Largest piece that one step moves; a message is cut into 512 pieces at most."}};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  constexpr size_t slots = 4;  // chunks in flight
  const int nranks = place.nranks(), rank = place.rank;
  const uint64_t n = problem.agreed.count;
  const bool exclusive = problem.agreed.coll == Coll::exscan, last = rank + 1 == nranks;
  const Ref own = own_vector(problem.local.in_place, n), result = output_ref(0, n);
  const Pieces cuts = pieces(n, place.params[0], info(problem.agreed.dtype).extent, 512);
  Ref landing[slots], leaving[slots];
  // Steps after which the slot's landing and leaving may be written again.
  Id landed[slots], left[slots];
  std::fill(landed, landed + slots, no_step);
  std::fill(left, left + slots, no_step);
  for (size_t i = 0; i < slots && rank > 0; ++i) {
    landing[i] = builder.scratch(cuts.size);
    if (exclusive && !last) leaving[i] = builder.scratch(cuts.size);
  }
  for (uint64_t p = 0; p < cuts.count; ++p) {
    const auto tag = static_cast<uint32_t>(p);
    const Ref mine = cut(own, cuts.size, p), to = cut(result, cuts.size, p);
    if (mine.count == 0) continue;
    if (rank == 0) {
      if (!exclusive && mine != to) builder.copy(mine, to, {});
      if (!last) builder.send(1, mine, {}, tag);
      continue;
    }
    const auto slot = p % slots;
    const Ref theirs = slice(landing[slot], 0, mine.count);
    const Id got = builder.recv(rank - 1, theirs, {landed[slot]}, tag);
    Id sum = no_step;
    Ref up = to;
    if (!exclusive) {
      landed[slot] = sum = builder.reduce(theirs, mine, to, {got});
    } else {
      up = slice(leaving[slot], 0, mine.count);
      if (!last) sum = builder.reduce(theirs, mine, up, {got, left[slot]});
      // In place, the own part lies where the result goes.
      landed[slot] = builder.copy(theirs, to, {got, sum});
    }
    if (last) continue;
    left[slot] = builder.send(rank + 1, up, {sum}, tag);
  }
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params& params) {
  const double chunks = s.chunks(s.bytes, params[0], 512), hops = s.ranks - 1;
  Estimate e;
  s.ring(e, hops + chunks, s.bytes + hops * s.bytes / chunks);
  e.reduced = s.bytes + hops * s.bytes / chunks;
  return e;
}

}  // namespace

extern const Algorithm scan_chain{
    "chain", "Chunks up the ranks; long messages.", collectives, parameters, applies, estimate,
    generate};

}  // namespace tutti
