#include "coll/hierarchy.hpp"

#include <map>
#include <set>

#include "base/log.hpp"

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

// What each member of the unit has of a vector that its owners' slices make up.
std::vector<uint64_t> part_counts(const Tier& tier, uint64_t count) {
  std::vector<uint64_t> counts(tier.unit.size(), 0);
  for (int s = 0; s < tier.slices; ++s)
    counts[static_cast<size_t>(tier.owner_of[static_cast<size_t>(s)])] =
        part(count, tier.slices, s).count;
  return counts;
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
  bool here = true;  // whether this rank still owns something; then `team` is its own
  for (Level level : levels) {
    const Units units = part_by(topology, level, team);
    if (alone(units)) continue;
    Tier tier;
    tier.level = level;
    tier.slices = slices_of(matches, level, units, rails);
    std::vector<std::vector<int32_t>> own;
    for (const auto& unit : units) {
      own.push_back(owners(matches, topology, unit, tier.slices, root));
      plan.widest = std::max(plan.widest, static_cast<int>(unit.size()));
      auto at = std::find(unit.begin(), unit.end(), rank);
      if (!here || at == unit.end()) continue;
      tier.unit = unit;
      tier.owner_of = own.back();
      const auto index = static_cast<int32_t>(at - unit.begin());
      auto slice = std::find(own.back().begin(), own.back().end(), index);
      if (slice != own.back().end()) tier.slice = static_cast<int>(slice - own.back().begin());
    }
    if (here) plan.tiers.push_back(tier);
    here = here && tier.slice >= 0;
    // Teams of all slices are alike; a rank that owns none follows the first, to know how wide it
    // is.
    const auto slice = static_cast<size_t>(here ? tier.slice : 0);
    team.clear();
    for (size_t u = 0; u < units.size(); ++u)
      team.push_back(units[u][static_cast<size_t>(own[u][slice])]);
  }
  plan.widest = std::max(plan.widest, static_cast<int>(team.size()));
  if (here) plan.team = team;
  return plan;
}

bool runs_of_ranks(const Topology& topology) {
  const std::vector<int32_t> all = everyone(topology);
  for (Level level : levels)
    for (const auto& unit : part_by(topology, level, all))
      if (unit.back() - unit.front() + 1 != static_cast<int32_t>(unit.size())) return false;
  return true;
}

bool has_levels(const Topology& topology) {
  const std::vector<int32_t> all = everyone(topology);
  for (Level level : levels)
    if (!alone(part_by(topology, level, all))) return true;
  return false;
}

Estimate estimate_levels(const Algorithm& top, const Scale& scale, int rails, uint64_t chunk_bytes,
                         Inner inner) {
  const Coll coll = top.collectives[0];
  const double n = scale.bytes;
  const bool both = coll == Coll::allreduce || coll == Coll::barrier;
  double slices = std::min(scale.near, scale.nics > 1 ? scale.nics : scale.near);
  if (rails > 0) slices = std::min(slices, static_cast<double>(rails));
  if (!both) slices = 1;
  Agreed agreed;
  agreed.coll = coll;
  Estimate e = top.estimate(agreed, scale.between(scale.far, 1 / slices), top.standard_params());
  if (scale.far <= 1) e = {};
  e.far.streams = std::max(e.far.streams, slices);
  const double ways = both ? 2 : 1;
  // Inside: a reduce-scatter sends all but the own slice; to one owner it is a tree of whole
  // vectors.
  const double moved = slices > 1 ? n * (1 - 1 / scale.near) : n * scale.log_near;
  // Word of a barrier goes to the owner from all at once.
  const double rounds = coll == Coll::barrier ? 1 + scale.near / 16
                        : slices > 1          ? std::max(1.0, (scale.near - 1) / 4)
                                              : scale.log_near;
  e.chunks = chunk_bytes == 0 ? 1 : scale.chunks(n, chunk_bytes, 256);
  if (inner == Inner::groups) {
    e.groups = ways * e.chunks;
    e.group_bytes = ways * n * (1 - 1 / scale.near);
  } else {
    e.near = {ways * rounds * e.chunks, ways * moved};
    if (coll == Coll::allreduce || coll == Coll::reduce) e.reduced += n;
  }
  e.far.messages *= e.chunks;
  return e;
}

Composer::Composer(const Problem& problem, const Place& place, int rails, int root, Setting setting,
                   ScheduleBuilder& builder)
    : problem_(problem),
      rank_(place.rank),
      root_(root),
      setting_(setting),
      builder_(builder),
      plan_(plan_levels(place.topology, place.rank, rails, root)),
      // The widest user of tags is a ring of 8 pieces a block, there and back; double_tree has 512.
      stride_(static_cast<uint32_t>(std::max(1024, 16 * plan_.widest))),
      arenas_(static_cast<size_t>(setting.depth)) {}

// Phases are numbered alike on all ranks: by level, down before up, the top last.
uint32_t Composer::tag(const Chunk& chunk, size_t tier, Phase phase) const {
  uint32_t number = phases - 1;
  if (phase != Phase::top)
    number = 2 * static_cast<uint32_t>(plan_.tiers[tier].level) + (phase == Phase::up ? 1 : 0);
  return (chunk.number * phases + number) * stride_;
}

Ref Composer::scratch(const Chunk& chunk, uint64_t count) {
  Arena& arena = arenas_[chunk.number % arenas_.size()];
  if (arena.next == arena.refs.size()) arena.refs.push_back(builder_.scratch(count));
  Ref& ref = arena.refs[arena.next++];
  if (ref.count < count) ref = builder_.scratch(count);
  return slice(ref, 0, count);
}

int Composer::index_in(std::span<const int32_t> team) const {
  return static_cast<int>(std::find(team.begin(), team.end(), rank_) - team.begin());
}

Ref Composer::slice_of(const Tier& tier, Ref range, int slice_number) const {
  return slice(range, part(range.count, tier.slices, slice_number));
}

void Composer::group_step(Chunk& chunk, const Tier& tier, Coll coll, Ref from, Ref to,
                          uint32_t group_tag) {
  Group group;
  group.coll = coll;
  group.level = tier.level;
  group.members = tier.unit;
  if (coll == Coll::reduce || coll == Coll::bcast) group.root = tier.owner_of[0];
  if (coll == Coll::reduce_scatter || coll == Coll::allgather)
    group.counts = part_counts(tier, coll == Coll::allgather ? to.count : from.count);
  std::vector<Id> after = chunk.ends;
  after.push_back(last_group_);
  last_group_ = builder_.group(std::move(group), from, to, std::span<const Id>(after), group_tag);
  chunk.ends = {last_group_};
}

// A flat algorithm on the ranks of `team` as a phase.
Status Composer::sub(Chunk& chunk, const Algorithm& algorithm, Coll coll, int root, bool in_place,
                     std::span<const uint64_t> counts, std::span<const int32_t> team, Ref from,
                     Ref to, uint32_t tag) {
  Problem problem = problem_;
  problem.agreed.coll = coll;
  problem.agreed.root = root;
  problem.agreed.counts = counts;
  problem.agreed.count = counts.empty() ? std::max(from.count, to.count) : 0;
  problem.local = {};
  problem.local.in_place = in_place;
  const Topology flat = Topology::flat(static_cast<int>(team.size()));
  const Params params = algorithm.standard_params();
  TUTTI_TRY(generate(algorithm, problem, Place{index_in(team), flat, params}, part_));
  const Ref room = scratch(chunk, part_.scratch_count);
  std::vector<Id> ends;
  graft(
      builder_, part_,
      {.team = team, .input = from, .output = to, .scratch = room, .tag = tag, .after = chunk.ends},
      ends);
  chunk.ends = ends;
  return {};
}

Status Composer::down_tier(Chunk& chunk, size_t at) {
  const Tier& tier = plan_.tiers[at];
  const Passage in = chunk.at[at];
  if (tier.unit.size() == 1) {
    chunk.left[at] = chunk.ends;
    chunk.at[at + 1] = in;
    return {};
  }
  const bool whole = tier.slices == 1;
  const Ref result = tier.slice < 0 ? Ref{} : slice_of(tier, in.result, tier.slice);
  Ref held = result;
  if (setting_.inner == Inner::groups) {
    group_step(chunk, tier, whole ? Coll::reduce : Coll::reduce_scatter, in.own, held,
               chunk.number);
  } else {
    // Schedules of messages know no input that lies in the output.
    if (in.own.space == held.space && held.count != 0) held = scratch(chunk, held.count);
    const uint32_t t = tag(chunk, at, Phase::down);
    if (whole) {
      TUTTI_TRY(sub(chunk, *find_algorithm(Coll::reduce, "binomial"), Coll::reduce,
                    tier.owner_of[0], false, {}, tier.unit, in.own, held, t));
    } else {
      const std::vector<uint64_t> counts = part_counts(tier, in.own.count);
      TUTTI_TRY(sub(chunk, *find_algorithm(Coll::reduce_scatter, "pairwise"), Coll::reduce_scatter,
                    0, false, counts, tier.unit, in.own, held, t));
    }
  }
  chunk.left[at] = chunk.ends;
  chunk.at[at + 1] = {held, result};
  return {};
}

Status Composer::up_tier(Chunk& chunk, size_t at) {
  const Tier& tier = plan_.tiers[at];
  if (tier.unit.size() == 1) return {};
  const Ref result = chunk.at[at].result;
  const bool whole = tier.slices == 1, owner = tier.slice >= 0;
  const Ref mine = owner ? slice_of(tier, result, tier.slice) : Ref{};
  // The gathered range overwrites what the way down has read.
  chunk.ends.insert(chunk.ends.end(), chunk.left[at].begin(), chunk.left[at].end());
  if (setting_.inner == Inner::groups) {
    group_step(chunk, tier, whole ? Coll::bcast : Coll::allgather, mine, result, chunk.number);
    return {};
  }
  const uint32_t t = tag(chunk, at, Phase::up);
  if (whole)
    return sub(chunk, *find_algorithm(Coll::bcast, "binomial"), Coll::bcast, tier.owner_of[0],
               false, {}, tier.unit, {}, result, t);
  const std::vector<uint64_t> counts = part_counts(tier, result.count);
  return sub(chunk, *find_algorithm(Coll::allgatherv, "ring"), Coll::allgatherv, 0, true, counts,
             tier.unit, {}, result, t);
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
  if (root_ >= 0) {
    auto here = std::find(plan_.team.begin(), plan_.team.end(), root_);
    root = static_cast<int>(here - plan_.team.begin());
  }
  return sub(chunk, *setting_.top, coll, root, in_place && coll != Coll::bcast, {}, plan_.team,
             at.own, at.result, tag(chunk, 0, Phase::top));
}

Status Composer::up(Chunk& chunk) {
  for (size_t t = plan_.tiers.size(); t-- > 0;) TUTTI_TRY(up_tier(chunk, t));
  return {};
}

Status Composer::run(Way way) {
  const uint64_t n = problem_.agreed.count;
  const bool has_output = way != Way::down || rank_ == root_;
  const Ref own = way == Way::up ? output_ref(0, n) : own_vector(problem_.local.in_place, n);
  const uint64_t most = std::clamp<uint64_t>(tag_limit / (phases * stride_), 1, 256);
  const Pieces cuts = pieces(n, setting_.chunk_bytes, info(problem_.agreed.dtype).extent, most);
  const auto depth = static_cast<uint64_t>(setting_.depth);
  std::vector<Chunk> chunks(cuts.count);
  for (uint64_t c = 0; c < cuts.count + depth; ++c) {
    // The way up of a chunk before the way down of the one `depth` later, the same on every rank.
    if (c >= depth && way != Way::down) TUTTI_TRY(up(chunks[c - depth]));
    if (c >= cuts.count) continue;
    Chunk& chunk = chunks[c];
    chunk.number = static_cast<uint32_t>(c);
    arenas_[c % depth].next = 0;
    if (c >= depth) chunk.ends = chunks[c - depth].ends;
    chunk.own = cut(own, cuts.size, c);
    chunk.result =
        has_output ? cut(output_ref(0, n), cuts.size, c) : scratch(chunk, chunk.own.count);
    chunk.left.resize(plan_.tiers.size());
    chunk.at.resize(plan_.tiers.size() + 1);
    chunk.at[0] = {chunk.own, chunk.result};
    if (way == Way::up) {
      for (size_t t = 0; t < plan_.tiers.size(); ++t) chunk.at[t + 1] = chunk.at[t];
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
  chunk.number = 0;
  auto word = [&](const Tier& tier, size_t at, Phase phase) {
    if (tier.unit.size() == 1) return;
    const auto owner = tier.unit[static_cast<size_t>(tier.owner_of[0])];
    const uint32_t t = tag(chunk, at, phase);
    std::vector<Id> heard;
    if (setting_.inner == Inner::groups)
      return group_step(chunk, tier, Coll::barrier, {}, {}, phase == Phase::up ? 1 : 0);
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
    TUTTI_TRY(sub(chunk, *setting_.top, Coll::barrier, 0, false, {}, plan_.team, {}, {},
                  tag(chunk, 0, Phase::top)));
  for (size_t t = plan_.tiers.size(); t-- > 0;) word(plan_.tiers[t], t, Phase::up);
  return {};
}

}  // namespace tutti
