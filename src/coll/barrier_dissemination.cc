// Dissemination barrier: at step k every rank tells rank + 2^k and hears from rank - 2^k.
// Steps ceil(log2 P); no bytes. Best everywhere without help from hardware.
// Source: D. Hensgen, R. Finkel, U. Manber, "Two algorithms for barrier synchronization", IJPP
// 17(1), 1988.
#include "coll/patterns.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::barrier};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

Status generate(const Problem&, const Place& place, ScheduleBuilder& builder) {
  const int nranks = place.nranks();
  Id heard = no_step;
  uint32_t tag = 0;
  for (int d = 1; d < nranks; d *= 2, ++tag) {
    builder.send(mod(place.rank + d, nranks), {}, {heard}, tag);
    heard = builder.recv(mod(place.rank - d, nranks), {}, {heard}, tag);
  }
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  Estimate e;
  e.near = {s.log_near, 0};
  e.far = {s.log_far, 0, s.near};
  return e;
}

}  // namespace

extern const Algorithm barrier_dissemination{
    "dissemination", "Everyone tells the rank at distance 1, 2, 4, ...",
    collectives,     {},
    applies,         estimate,
    generate};

}  // namespace tutti
