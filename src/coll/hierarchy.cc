#include "coll/hierarchy.hpp"

#include <map>
#include <set>

#include "base/log.hpp"
#include "coll/in_network.hpp"

namespace tutti {

namespace {

constexpr Level levels[] = {Level::shared_gpu, Level::nvlink, Level::node};

// Number of the rank's unit at that level; ranks that have no company there get one of their own.
int64_t unit_key(const Topology& topology, Level level, int rank) {
  const int64_t alone = -1 - static_cast<int64_t>(rank);
  const int64_t node = topology.node_of(rank);
  switch (level) {
    case Level::shared_gpu:
      return topology.gpu_of(rank) < 0 ? alone : node << 16 | topology.gpu_of(rank);
    case Level::nvlink:
      return topology.nvlink_of(rank) < 0 ? alone : topology.nvlink_of(rank);
    default:
      return node;
  }
}

using Units = std::vector<std::vector<int32_t>>;

// Parts `ranks` (ascending in the order of their units) by level, in the order of their first
// members.
Units part_by(const Topology& topology, Level level, const std::vector<int32_t>& ranks) {
  Units units;
  std::map<int64_t, size_t> known;
  for (int32_t rank : ranks) {
    auto [at, fresh] = known.try_emplace(unit_key(topology, level, rank), units.size());
    if (fresh) units.emplace_back();
    units[at->second].push_back(rank);
  }
  return units;
}

bool alone(const Units& units) {
  for (const auto& unit : units)
    if (unit.size() > 1) return false;
  return true;
}

// Matchings of GPUs and NICs, solved once a node.
class Matches {
 public:
  explicit Matches(const Topology& topology) : topology_(topology) {}

  // Best NIC of the rank's GPU, -1 if there is none.
  int32_t first(int rank) {
    const std::vector<int32_t>* list = nics(rank);
    return list == nullptr || list->empty() ? -1 : (*list)[0];
  }
  // NICs that serve the ranks; 0 when nothing is known of NICs.
  int count(const std::vector<int32_t>& ranks) {
    std::set<std::pair<int, int32_t>> all;
    for (int32_t rank : ranks)
      if (const std::vector<int32_t>* list = nics(rank))
        for (int32_t nic : *list) all.emplace(topology_.node_of(rank), nic);
    return static_cast<int>(all.size());
  }

 private:
  const std::vector<int32_t>* nics(int rank) {
    const auto node = static_cast<size_t>(topology_.node_of(rank));
    const int gpu = topology_.gpu_of(rank);
    if (gpu < 0 || node >= topology_.nodes.size()) return nullptr;
    auto [at, fresh] = known_.try_emplace(node);
    if (fresh) at->second = match_nics(topology_.nodes[node]);
    return &at->second[static_cast<size_t>(gpu)];
  }

  const Topology& topology_;
  std::map<size_t, std::vector<std::vector<int32_t>>> known_;
};

// Members that own slices, as indices into the unit, ascending: the root where it is here, then
// those with a NIC that nobody has yet, then the rest in order.
std::vector<int32_t> owners(Matches& matches, const Topology& topology,
                            const std::vector<int32_t>& unit, int slices, int root) {
  std::vector<int32_t> order;
  auto add = [&](size_t i) {
    if (std::find(order.begin(), order.end(), static_cast<int32_t>(i)) == order.end())
      order.push_back(static_cast<int32_t>(i));
  };
  for (size_t i = 0; i < unit.size(); ++i)
    if (unit[i] == root) add(i);
  std::set<std::pair<int, int32_t>> taken;
  for (size_t i = 0; i < unit.size() && slices > 1; ++i) {
    const int32_t nic = matches.first(unit[i]);
    if (nic >= 0 && taken.emplace(topology.node_of(unit[i]), nic).second) add(i);
  }
  for (size_t i = 0; i < unit.size(); ++i) add(i);
  order.resize(static_cast<size_t>(slices));
  std::sort(order.begin(), order.end());
  return order;
}

int slices_of(Matches& matches, Level level, const Units& units, int rails) {
  size_t least = units[0].size();
  for (const auto& unit : units) least = std::min(least, unit.size());
  int slices = static_cast<int>(least);
  if (rails > 0) slices = std::min(slices, rails);
  // Where the node's own level hands over to the fabric, a slice without a NIC gains nothing.
  if (level == Level::node && units.size() > 1)
    for (const auto& unit : units)
      if (int nics = matches.count(unit); nics > 0) slices = std::min(slices, nics);
  return slices;
}

std::vector<int32_t> everyone(const Topology& topology) {
  std::vector<int32_t> all(static_cast<size_t>(topology.nranks));
  for (size_t r = 0; r < all.size(); ++r) all[r] = static_cast<int32_t>(r);
  return all;
}

}  // namespace

Plan plan_levels(const Topology& topology, int rank, int rails, int root) {
  Plan plan;
  Matches matches(topology);
  std::vector<int32_t> team = everyone(topology);
  int source = root;
  bool here = true;  // whether this rank still owns something; then `team` is its own
  for (Level level : levels) {
    const Units units = part_by(topology, level, team);
    if (alone(units)) continue;
    Tier tier;
    tier.level = level;
    tier.slices = slices_of(matches, level, units, rails);
    plan.grain *= static_cast<uint64_t>(tier.slices);
    size_t source_unit = 0;
    std::vector<std::vector<int32_t>> own;
    for (const auto& unit : units) {
      own.push_back(owners(matches, topology, unit, tier.slices, source));
      const bool has_source = std::find(unit.begin(), unit.end(), source) != unit.end();
      if (has_source) source_unit = own.size() - 1;
      plan.widest = std::max(plan.widest, static_cast<int>(unit.size()));
      auto at = std::find(unit.begin(), unit.end(), rank);
      if (!here || at == unit.end()) continue;
      tier.unit = unit;
      tier.owner_of = own.back();
      tier.source = has_source ? source : -1;
      const auto index = static_cast<int32_t>(at - unit.begin());
      auto slice = std::find(own.back().begin(), own.back().end(), index);
      if (slice != own.back().end()) tier.slice = static_cast<int>(slice - own.back().begin());
    }
    if (here) plan.tiers.push_back(tier);
    here = here && tier.slice >= 0;
    // Teams of all slices are alike; a rank that owns none follows the first, to know how wide it
    // is.
    const auto slice = static_cast<size_t>(here ? tier.slice : 0);
    if (source >= 0) source = units[source_unit][static_cast<size_t>(own[source_unit][slice])];
    team.clear();
    for (size_t u = 0; u < units.size(); ++u)
      team.push_back(units[u][static_cast<size_t>(own[u][slice])]);
  }
  plan.widest = std::max(plan.widest, static_cast<int>(team.size()));
  if (here) plan.team = team;
  plan.source = source;
  return plan;
}

Split split_units(const Topology& topology, int rails, int root) {
  Split split;
  split.units = topology.units();
  split.unit_of.resize(static_cast<size_t>(topology.nranks));
  split.index_of.resize(static_cast<size_t>(topology.nranks));
  Matches matches(topology);
  split.slices = slices_of(matches, Level::node, split.units, rails);
  for (size_t u = 0; u < split.units.size(); ++u) {
    const auto& unit = split.units[u];
    split.owner_of.push_back(owners(matches, topology, unit, split.slices, root));
    for (size_t i = 0; i < unit.size(); ++i) {
      split.unit_of[static_cast<size_t>(unit[i])] = static_cast<int32_t>(u);
      split.index_of[static_cast<size_t>(unit[i])] = static_cast<int32_t>(i);
    }
  }
  return split;
}

namespace {

bool are_runs(const Units& units) {
  return std::all_of(units.begin(), units.end(), [](const auto& unit) {
    return unit.back() - unit.front() + 1 == static_cast<int32_t>(unit.size());
  });
}

bool is_ordered(const Agreed& agreed) {
  return reduces(agreed.coll) && agreed.op == Op::user && !agreed.commutative;
}

bool top_applies(const Algorithm& top, const Agreed& agreed, const Topology& topology) {
  if (is_in_network(top)) return switches_do(agreed, topology);
  return top.applies(agreed, topology, top.standard_params());
}

}  // namespace

bool runs_of_ranks(const Topology& topology) {
  const std::vector<int32_t> all = everyone(topology);
  for (Level level : levels)
    if (!are_runs(part_by(topology, level, all))) return false;
  return true;
}

bool has_levels(const Topology& topology) {
  const std::vector<int32_t> all = everyone(topology);
  for (Level level : levels)
    if (!alone(part_by(topology, level, all))) return true;
  return false;
}

bool has_units(const Topology& topology) {
  const Units units = topology.units();
  return units.size() > 1 && !alone(units);
}

bool levels_apply(const Algorithm& top, const Agreed& agreed, const Topology& topology) {
  return has_levels(topology) && (!is_ordered(agreed) || runs_of_ranks(topology)) &&
         top_applies(top, agreed, topology);
}

bool units_apply(const Algorithm* top, const Agreed& agreed, const Topology& topology) {
  // A scan has an order whatever the operation.
  const bool ordered =
      is_ordered(agreed) || agreed.coll == Coll::scan || agreed.coll == Coll::exscan;
  return has_units(topology) && (!ordered || are_runs(topology.units())) &&
         (top == nullptr || top_applies(*top, agreed, topology));
}

namespace {

double slices_in(const Scale& scale, int rails) {
  const double slices = std::min(scale.near, scale.nics > 1 ? scale.nics : scale.near);
  return rails > 0 ? std::min(slices, static_cast<double>(rails)) : slices;
}

// Phases inside units that move `whole` bytes: by group steps, or by messages of a ring or a tree.
void add_inside(Estimate& e, const Scale& scale, Coll coll, double slices, double whole,
                Inner inner) {
  if (scale.near <= 1) return;
  if (inner == Inner::groups) {
    e.groups += e.chunks;
    e.group_bytes += group_bytes(coll, scale.inside, scale.near, whole);
    return;
  }
  // To or from one owner it is a tree of whole vectors.
  const bool tree = slices <= 1;
  const double messages = coll == Coll::reduce_scatter && !tree ? (scale.near - 1) / 4
                          : tree                                ? scale.log_near
                                                                : scale.near - 1;
  e.near.messages += std::max(1.0, messages) * e.chunks;
  if (!tree) e.near.sends += (scale.near - 1) * e.chunks;
  if (!tree) e.near.recvs += (scale.near - 1) * e.chunks;
  e.near.bytes += tree ? whole * scale.log_near : whole * (1 - 1 / scale.near);
  if (coll == Coll::reduce_scatter) e.reduced += tree ? whole * scale.log_near : whole;
}

// What `top` costs among owners of one slice, side by side in all slices, in e.chunks chunks.
void add_top(Estimate& e, const Algorithm& top, Coll coll, const Scale& scale, double slices) {
  if (scale.far <= 1) return;
  Agreed agreed;
  agreed.coll = coll;
  const Estimate one =
      top.estimate(agreed, scale.between(scale.far, 1 / slices / e.chunks), top.standard_params());
  constexpr double depth = 2;  // chunks in flight hide each other's latency
  e.far.messages += one.far.messages * std::max(1.0, e.chunks / depth);
  e.far.sends += one.far.sends * e.chunks;
  e.far.recvs += one.far.recvs * e.chunks;
  e.far.bytes += one.far.bytes * e.chunks;
  e.switch_steps += one.switch_steps * e.chunks;
  e.switch_bytes += one.switch_bytes * e.chunks * slices;
  e.far.streams = std::max(e.far.streams, slices * one.far.streams);
  e.reduced += one.reduced * e.chunks;
  e.copied += one.copied * e.chunks;
}

}  // namespace

Estimate estimate_levels(const Algorithm& top, const Scale& scale, int rails, uint64_t chunk_bytes,
                         Inner inner) {
  const Coll coll = top.collectives[0];
  const bool both = coll == Coll::allreduce, barrier = coll == Coll::barrier;
  const double slices = both || coll == Coll::bcast ? slices_in(scale, rails) : 1;
  Estimate e;
  e.chunks = chunk_bytes == 0 ? 1 : scale.chunks(scale.bytes, chunk_bytes, 256);
  add_top(e, top, coll, scale, slices);
  if (barrier && inner == Inner::messages) {
    // Word of a barrier goes to the owner from all at once, and back.
    e.near.messages += 2;
    e.near.sends += scale.near - 1;
    e.near.recvs += scale.near - 1;
    return e;
  }
  if (both || coll == Coll::reduce)
    add_inside(e, scale, Coll::reduce_scatter, slices, scale.bytes, inner);
  if (coll == Coll::bcast && slices > 1) {
    // The root gives the owners in its unit their slices.
    e.near.messages += e.chunks;
    e.near.sends += e.chunks * std::min(slices - 1, scale.bytes);
    e.near.bytes += scale.bytes * (1 - 1 / slices);
  }
  if (both || coll == Coll::bcast)
    add_inside(e, scale, Coll::allgather, slices, scale.bytes, inner);
  if (barrier) e.groups += 2;
  return e;
}

Estimate estimate_blocks(Coll coll, const Algorithm* top, const Scale& scale, int rails,
                         uint64_t chunk_bytes, Inner inner) {
  const double whole = scale.bytes, near = scale.near, far = scale.far;
  const double slices = slices_in(scale, rails);
  const double most = std::clamp(32768 / scale.ranks, 1.0,
                                 tag_limit / 4 / std::max(1024.0, 16 * std::max(near, far)));
  Estimate e;
  e.chunks = scale.chunks(whole, chunk_bytes, most);
  switch (coll) {
    case Coll::allgather:
      if (slices < near && inner == Inner::groups)
        add_inside(e, scale, Coll::allgather, slices, whole / far, inner);
      if (slices < near && inner == Inner::messages) {
        e.near.messages += e.chunks;
        e.near.recvs += e.chunks * (near / slices - 1);
        e.near.bytes += whole / far * (1 / slices - 1 / near);
      }
      add_top(e, *top, coll, scale, slices);
      add_inside(e, scale, Coll::allgather, slices, whole, inner);
      if (slices > 1 || e.chunks > 1) e.copied += whole;
      break;
    case Coll::reduce_scatter:
      if (slices > 1 || e.chunks > 1) e.copied += whole;
      add_inside(e, scale, Coll::reduce_scatter, slices, whole, inner);
      add_top(e, *top, coll, scale, slices);
      e.near.messages += e.chunks;
      e.near.sends += e.chunks * (near / slices - 1);
      e.near.bytes += whole / far * (1 - 1 / near) / slices;
      break;
    case Coll::gather:
    case Coll::scatter: {
      // Up to a rank of every unit, whose link carries its members' blocks, and up the tree, where
      // the root's link carries all.
      const double rounds = top == nullptr ? std::max(1.0, (far - 1) / 8) : scale.log_far;
      e.near.messages += e.chunks * std::max(1.0, (near - 1) / 8);
      e.near.bytes += whole / far * (1 - 1 / near);
      e.far.messages += e.chunks * rounds;
      // The root's.
      const bool gathers = coll == Coll::gather;
      const double inside = e.chunks * (near - 1),
                   outside = e.chunks * (top == nullptr ? far - 1 : rounds);
      (gathers ? e.near.recvs : e.near.sends) += inside;
      (gathers ? e.far.recvs : e.far.sends) += outside;
      e.far.bytes += whole * (1 - 1 / far);
      e.copied += whole / scale.ranks;
      break;
    }
    case Coll::alltoall: {
      // `whole` is what one rank sends; an owner handles near / owners ranks' share of it.
      const double owners = std::min(slices, std::max(1.0, far - 1));
      const double share = whole * near / owners;
      e.near.messages += e.chunks * 2 * std::max(1.0, near / 4);
      e.near.sends += e.chunks * (2 * (near - 1) + owners - 1);
      e.near.recvs += e.chunks * (2 * (near - 1) + owners - 1);
      e.far.sends += e.chunks * (far - 1) / owners;
      e.far.recvs += e.chunks * (far - 1) / owners;
      e.near.bytes += 2 * share * (1 - 1 / far) + whole / far;
      e.far.messages += e.chunks * std::max(1.0, (far - 1) / owners / 4);
      e.far.bytes += share * (1 - 1 / far);
      e.far.streams = owners;
      e.copied += whole + 2 * share;
      break;
    }
    default:  // scans
      e.near.messages += 2 * scale.log_near * e.chunks;
      e.near.bytes += 2 * scale.log_near * whole;
      add_top(e, *top, coll, scale, 1);
      e.reduced += (scale.log_near + 1) * whole;
  }
  return e;
}

Composition::Composition(const Problem& problem, const Place& place, Setting setting, int widest,
                         uint32_t phases, ScheduleBuilder& builder)
    : problem_(problem),
      rank_(place.rank),
      setting_(setting),
      builder_(builder),
      phases_(phases),
      // The widest user of tags is a ring of 8 pieces a block, there and back; double_tree has 512.
      stride_(static_cast<uint32_t>(std::max(1024, 16 * widest))),
      arenas_(static_cast<size_t>(setting.depth)) {}

uint64_t Composition::most_chunks() const {
  return std::clamp<uint64_t>(tag_limit / (uint64_t{phases_} * stride_), 1, 256);
}

void Composition::reuse_scratch(uint64_t number) {
  arenas_[number % arenas_.size()].next = 0;
}

Ref Composition::scratch(const Strand& strand, uint64_t count) {
  Arena& arena = arenas_[strand.number % arenas_.size()];
  if (arena.next == arena.refs.size()) arena.refs.push_back(builder_.scratch(count));
  Ref& ref = arena.refs[arena.next++];
  if (ref.count < count) ref = builder_.scratch(count);
  return slice(ref, 0, count);
}

int Composition::index_in(std::span<const int32_t> team) const {
  return static_cast<int>(std::find(team.begin(), team.end(), rank_) - team.begin());
}

void Composition::group_step(Strand& strand, Level level, Coll coll, int root,
                             std::span<const int32_t> members, std::span<const uint64_t> counts,
                             Ref from, Ref to, uint32_t tag) {
  Group group;
  group.coll = coll;
  group.level = level;
  group.root = root;
  group.members.assign(members.begin(), members.end());
  group.counts.assign(counts.begin(), counts.end());
  std::vector<Id> after = strand.ends;
  Id& last = level == Level::fabric ? last_switch_step_ : last_group_;
  after.push_back(last);
  last = builder_.group(std::move(group), from, to, std::span<const Id>(after), tag);
  strand.ends = {last};
}

Status Composition::sub(Strand& strand, const Part& what, std::span<const int32_t> team, Ref from,
                        Ref to, uint32_t tag) {
  // A team of one has nothing for the switches to do; any algorithm makes that a copy.
  if (is_in_network(*what.algorithm)) {
    if (team.size() > 1) {
      group_step(strand, Level::fabric, what.coll, 0, team, {}, from, to, strand.number);
      return {};
    }
    Part other = what;
    other.algorithm = find_algorithm(
        what.coll, what.coll == Coll::barrier ? "dissemination" : "recursive_doubling");
    return sub(strand, other, team, from, to, tag);
  }
  Problem problem = problem_;
  problem.agreed.coll = what.coll;
  problem.agreed.root = what.root;
  problem.agreed.counts = what.counts;
  problem.agreed.count = what.counts.empty() ? std::max(from.count, to.count) : 0;
  problem.local = {};
  problem.local.in_place = what.in_place;
  const Topology flat = Topology::flat(static_cast<int>(team.size()));
  const Params params = what.algorithm->standard_params();
  TUTTI_TRY(generate(*what.algorithm, problem, Place{index_in(team), flat, params}, part_));
  const Ref room = scratch(strand, part_.scratch_count);
  std::vector<Id> ends;
  graft(builder_, part_,
        {.team = team,
         .input = from,
         .output = to,
         .scratch = room,
         .tag = tag,
         .after = strand.ends},
        ends);
  strand.ends = ends;
  return {};
}

std::vector<uint64_t> Composition::by_member(std::span<const int32_t> unit,
                                             std::span<const int32_t> owner_of,
                                             std::span<const uint64_t> sizes) {
  std::vector<uint64_t> counts(unit.size(), 0);
  for (size_t s = 0; s < owner_of.size(); ++s) counts[static_cast<size_t>(owner_of[s])] = sizes[s];
  return counts;
}

Status Composition::reduce_inside(Strand& strand, Level level, std::span<const int32_t> unit,
                                  std::span<const int32_t> owner_of,
                                  std::span<const uint64_t> sizes, Ref from, Ref to, uint32_t tag) {
  const bool whole = sizes.size() == 1;
  const std::vector<uint64_t> counts =
      whole ? std::vector<uint64_t>{} : by_member(unit, owner_of, sizes);
  if (setting_.inner == Inner::groups) {
    group_step(strand, level, whole ? Coll::reduce : Coll::reduce_scatter, whole ? owner_of[0] : 0,
               unit, counts, from, to, strand.number);
    return {};
  }
  if (whole)
    return sub(strand,
               {.algorithm = find_algorithm(Coll::reduce, "binomial"),
                .coll = Coll::reduce,
                .root = owner_of[0]},
               unit, from, to, tag);
  return sub(strand,
             {.algorithm = find_algorithm(Coll::reduce_scatter, "pairwise"),
              .coll = Coll::reduce_scatter,
              .counts = counts},
             unit, from, to, tag);
}

Status Composition::gather_inside(Strand& strand, Level level, std::span<const int32_t> unit,
                                  std::span<const int32_t> owner_of,
                                  std::span<const uint64_t> sizes, Ref from, Ref to, uint32_t tag) {
  const bool whole = sizes.size() == 1;
  const std::vector<uint64_t> counts =
      whole ? std::vector<uint64_t>{} : by_member(unit, owner_of, sizes);
  if (setting_.inner == Inner::groups) {
    group_step(strand, level, whole ? Coll::bcast : Coll::allgather, whole ? owner_of[0] : 0, unit,
               counts, from, to, strand.number);
    return {};
  }
  if (whole)
    return sub(strand,
               {.algorithm = find_algorithm(Coll::bcast, "binomial"),
                .coll = Coll::bcast,
                .root = owner_of[0]},
               unit, {}, to, tag);
  return sub(strand,
             {.algorithm = find_algorithm(Coll::allgatherv, "ring"),
              .coll = Coll::allgatherv,
              .in_place = true,
              .counts = counts},
             unit, {}, to, tag);
}

Composer::Composer(const Problem& problem, const Place& place, int rails, int root, Setting setting,
                   ScheduleBuilder& builder)
    : Composer(problem, place, root, setting, builder,
               plan_levels(place.topology, place.rank, rails, root)) {}

Composer::Composer(const Problem& problem, const Place& place, int root, Setting setting,
                   ScheduleBuilder& builder, Plan plan)
    : Composition(problem, place, setting, plan.widest, phases, builder),
      root_(root),
      plan_(std::move(plan)) {}

// Phases are numbered alike on all ranks: by level, down before up, the top last.
uint32_t Composer::phase_tag(const Chunk& chunk, size_t tier, Phase phase) const {
  uint32_t number = phases - 1;
  if (phase != Phase::top)
    number = 2 * static_cast<uint32_t>(plan_.tiers[tier].level) + (phase == Phase::up ? 1 : 0);
  return tag(chunk, number);
}

namespace {

std::vector<uint64_t> slice_sizes(const Tier& tier, uint64_t count) {
  std::vector<uint64_t> sizes;
  for (const Block& slice : parts(count, tier.slices)) sizes.push_back(slice.count);
  return sizes;
}

Ref slice_of(const Tier& tier, Ref range) {
  return tier.slice < 0 ? Ref{} : slice(range, part(range.count, tier.slices, tier.slice));
}

}  // namespace

Status Composer::down_tier(Chunk& chunk, size_t at) {
  const Tier& tier = plan_.tiers[at];
  const Passage in = chunk.at[at];
  if (tier.unit.size() == 1) {
    chunk.left[at] = chunk.ends;
    chunk.at[at + 1] = in;
    return {};
  }
  const Ref result = slice_of(tier, in.result);
  Ref held = result;
  // Schedules of messages know no input that lies in the output.
  if (setting_.inner == Inner::messages && in.own.space == held.space && held.count != 0)
    held = scratch(chunk, held.count);
  TUTTI_TRY(reduce_inside(chunk, tier.level, tier.unit, tier.owner_of,
                          slice_sizes(tier, in.own.count), in.own, held,
                          phase_tag(chunk, at, Phase::down)));
  chunk.left[at] = chunk.ends;
  chunk.at[at + 1] = {held, result};
  return {};
}

Status Composer::up_tier(Chunk& chunk, size_t at) {
  const Tier& tier = plan_.tiers[at];
  if (tier.unit.size() == 1) return {};
  const Ref result = chunk.at[at].result;
  // The gathered range overwrites what the way down has read.
  chunk.ends.insert(chunk.ends.end(), chunk.left[at].begin(), chunk.left[at].end());
  return gather_inside(chunk, tier.level, tier.unit, tier.owner_of, slice_sizes(tier, result.count),
                       slice_of(tier, result), result, phase_tag(chunk, at, Phase::up));
}

Status Composer::down(Chunk& chunk) {
  for (size_t t = 0; t < plan_.tiers.size(); ++t) TUTTI_TRY(down_tier(chunk, t));
  return {};
}

Status Composer::top(Chunk& chunk) {
  if (plan_.team.empty()) return {};
  const Passage at = chunk.at[plan_.tiers.size()];
  const Coll coll = setting_.top->collectives[0];
  const bool in_place = at.own == at.result;
  int root = 0;
  if (plan_.source >= 0) {
    auto here = std::find(plan_.team.begin(), plan_.team.end(), plan_.source);
    root = static_cast<int>(here - plan_.team.begin());
  }
  return sub(chunk,
             {.algorithm = setting_.top,
              .coll = coll,
              .root = root,
              .in_place = in_place && coll != Coll::bcast},
             plan_.team, at.own, at.result, phase_tag(chunk, 0, Phase::top));
}

// The way down of a broadcast: who has the vector gives the owners in its unit their slices.
void Composer::scatter(Chunk& chunk) {
  for (size_t t = 0; t < plan_.tiers.size(); ++t) {
    const Tier& tier = plan_.tiers[t];
    const Ref whole = chunk.at[t].result;
    std::vector<Id> done;
    for (int s = 0; s < tier.slices && tier.source >= 0 && tier.unit.size() > 1; ++s) {
      const int32_t owner = tier.unit[static_cast<size_t>(tier.owner_of[static_cast<size_t>(s)])];
      const Ref theirs = slice(whole, part(whole.count, tier.slices, s));
      if (owner == tier.source || theirs.count == 0) continue;
      const uint32_t t_down = phase_tag(chunk, t, Phase::down);
      if (rank_ == tier.source)
        done.push_back(builder_.send(owner, theirs, std::span<const Id>(chunk.ends), t_down));
      if (rank_ == owner)
        done.push_back(builder_.recv(tier.source, theirs, std::span<const Id>(chunk.ends), t_down));
    }
    // What is sent does not hold up the source; what is received is what the owner goes on with.
    chunk.left[t] = done;
    if (rank_ != tier.source && !done.empty()) chunk.ends = done;
    const Ref mine = tier.unit.size() == 1 ? whole : slice_of(tier, whole);
    chunk.at[t + 1] = {mine, mine};
  }
}

Status Composer::up(Chunk& chunk) {
  for (size_t t = plan_.tiers.size(); t-- > 0;) TUTTI_TRY(up_tier(chunk, t));
  return {};
}

// Chunks whose slices are of one length at every level, because kernels know no others. What is left, less
// than an element a slice, is a chunk of its own: not worth its messages where the vector is short.
std::vector<Block> Composer::chunks_of(uint64_t n) const {
  constexpr uint64_t least_even_bytes = 64 << 10;
  const uint64_t extent = info(problem_.agreed.dtype).extent;
  const uint64_t most = most_chunks();
  Pieces cuts = pieces(n, setting_.chunk_bytes, extent, most);
  uint64_t even = n;
  if (plan_.grain > 1 && most > 1 && n * extent >= least_even_bytes) {
    even = n / plan_.grain * plan_.grain;
    const uint64_t least = ceil_div(even, most - 1);
    cuts.size =
        ceil_div(std::max(cuts.size / plan_.grain * plan_.grain, least), plan_.grain) * plan_.grain;
  }
  std::vector<Block> chunks;
  for (uint64_t at = 0; at < even; at += cuts.size)
    chunks.push_back({at, std::min(cuts.size, even - at)});
  if (even != n || chunks.empty()) chunks.push_back({even, n - even});
  return chunks;
}

Status Composer::run(Way way) {
  const uint64_t n = problem_.agreed.count;
  const bool has_output = way != Way::down || rank_ == root_;
  const Ref own = way == Way::up ? output_ref(0, n) : own_vector(problem_.local.in_place, n);
  const std::vector<Block> cuts = chunks_of(n);
  const auto depth = static_cast<uint64_t>(setting_.depth);
  std::vector<Chunk> chunks(cuts.size());
  for (uint64_t c = 0; c < cuts.size() + depth; ++c) {
    // The way up of a chunk before the way down of the one `depth` later, the same on every rank.
    if (c >= depth && way != Way::down) TUTTI_TRY(up(chunks[c - depth]));
    if (c >= cuts.size()) continue;
    Chunk& chunk = chunks[c];
    chunk.number = static_cast<uint32_t>(c);
    reuse_scratch(c);
    if (c >= depth) chunk.ends = chunks[c - depth].ends;
    chunk.own = slice(own, cuts[c]);
    chunk.result = has_output ? slice(output_ref(0, n), cuts[c]) : scratch(chunk, chunk.own.count);
    chunk.left.resize(plan_.tiers.size());
    chunk.at.resize(plan_.tiers.size() + 1);
    chunk.at[0] = {chunk.own, chunk.result};
    if (way == Way::up) {
      scatter(chunk);
    } else {
      TUTTI_TRY(down(chunk));
    }
    TUTTI_TRY(top(chunk));
  }
  return {};
}

Status Composer::allreduce() {
  return run(Way::both);
}
Status Composer::reduce() {
  return run(Way::down);
}
Status Composer::bcast() {
  return run(Way::up);
}

Status Composer::barrier() {
  Chunk chunk;
  auto word = [&](const Tier& tier, size_t at, Phase phase) {
    if (tier.unit.size() == 1) return;
    const auto owner = tier.unit[static_cast<size_t>(tier.owner_of[0])];
    const uint32_t t = phase_tag(chunk, at, phase);
    std::vector<Id> heard;
    if (setting_.inner == Inner::groups)
      return group_step(chunk, tier.level, Coll::barrier, 0, tier.unit, {}, {}, {},
                        phase == Phase::up ? 1 : 0);
    for (int32_t member : tier.unit) {
      if (member == owner) continue;
      if (rank_ != owner && rank_ != member) continue;
      const bool sends = (rank_ == owner) == (phase == Phase::up);
      const int peer = rank_ == owner ? member : owner;
      Id id = sends ? builder_.send(peer, {}, std::span<const Id>(chunk.ends), t)
                    : builder_.recv(peer, {}, std::span<const Id>(chunk.ends), t);
      heard.push_back(id);
    }
    if (!heard.empty()) chunk.ends = heard;
  };
  for (size_t t = 0; t < plan_.tiers.size(); ++t) word(plan_.tiers[t], t, Phase::down);
  if (!plan_.team.empty())
    TUTTI_TRY(sub(chunk, {.algorithm = setting_.top, .coll = Coll::barrier}, plan_.team, {}, {},
                  phase_tag(chunk, 0, Phase::top)));
  for (size_t t = plan_.tiers.size(); t-- > 0;) word(plan_.tiers[t], t, Phase::up);
  return {};
}

}  // namespace tutti
