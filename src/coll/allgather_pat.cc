// PAT allgather (parallel aggregated trees): every block goes down its own binomial tree, farthest
// ranks first; all trees run side by side and share messages. Steps ceil(log2 P) for any P; bytes
// sent a rank n(P-1)/P of the whole; only the last steps, between near ranks, carry many bytes.
// Best for short and middle blocks. Source: S. Jeaugey, "PAT: a new algorithm for all-gather and
// reduce-scatter operations at scale", arXiv 2506.20252, 2025, here with a buffer for all blocks.
#include "coll/phases.hpp"
#include "coll/registry.hpp"

namespace tutti {

namespace {

constexpr Coll collectives[] = {Coll::allgather, Coll::allgatherv};

bool applies(const Agreed&, const Topology&, const Params&) {
  return true;
}

// A block at hand: of rank - offset.
struct Held {
  int offset;
  Ref at;
  Id ready;
};

Status generate(const Problem& problem, const Place& place, ScheduleBuilder& builder) {
  const int nranks = place.nranks(), rank = place.rank;
  const std::vector<Block> blocks = output_blocks(problem, nranks);
  auto block = [&](int offset) { return blocks[static_cast<size_t>(mod(rank - offset, nranks))]; };
  const Ref own = own_block(problem, rank, block(0));
  const Ref place_of_own = output_ref(block(0).offset, block(0).count);
  if (own != place_of_own) builder.copy(own, place_of_own, {});
  std::vector<Held> held = {{0, own, no_step}};
  uint32_t tag = 0;
  for (int d = 1 << ceil_log2(nranks) >> 1; d >= 1; d /= 2, ++tag) {
    // Blocks at offset o < P - d go to rank + d, for which they are at o + d.
    uint64_t leaving = 0, arriving = 0;
    for (const Held& h : held)
      if (h.offset + d < nranks) {
        leaving += h.at.count;
        arriving += block(h.offset + d).count;
      }
    const Ref out = builder.scratch(leaving), in = builder.scratch(arriving);
    std::vector<Id> packed;
    std::vector<Held> fresh;
    uint64_t out_at = 0, in_at = 0;
    for (const Held& h : held) {
      if (h.offset + d >= nranks) continue;
      packed.push_back(builder.copy(h.at, slice(out, out_at, h.at.count), {h.ready}));
      out_at += h.at.count;
      const uint64_t count = block(h.offset + d).count;
      fresh.push_back({h.offset + d, slice(in, in_at, count), no_step});
      in_at += count;
    }
    if (leaving != 0) builder.send(mod(rank + d, nranks), out, std::span<const Id>(packed), tag);
    if (arriving == 0) {
      held.insert(held.end(), fresh.begin(), fresh.end());
      continue;
    }
    Id got = builder.recv(mod(rank - d, nranks), in, {}, tag);
    for (Held& h : fresh) {
      const Block to = block(h.offset);
      builder.copy(h.at, output_ref(to.offset, to.count), {got});
      h.ready = got;
      held.push_back(h);
    }
  }
  return {};
}

Estimate estimate(const Agreed&, const Scale& s, const Params&) {
  const double n = s.bytes;
  Estimate e;
  e.near = {s.log_near, n * (1 - 1 / s.near)};
  // Rounds at short distances, with most of the bytes, reach over the ends of nodes too.
  const double over = s.far > 1 ? n * (1 - 1 / s.near) / std::max(1.0, s.near / s.nics) : 0;
  e.far = {s.log_far, n / s.near * (1 - 1 / s.far) + over, s.near};
  e.copied = 2 * n;
  return e;
}

}  // namespace

extern const Algorithm allgather_pat{
    "pat",       "Binomial trees of all blocks side by side, farthest ranks first; any P.",
    collectives, {},
    applies,     estimate,
    generate};

}  // namespace tutti
