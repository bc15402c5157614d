// Collectives of blocks through two levels: see hierarchy.hpp.
#include <algorithm>

#include "coll/hierarchy.hpp"
#include "coll/phases.hpp"

namespace tutti {

namespace {

// All in a NVLink domain or on a GPU, or only in a node.
Level level_of(const Topology& topology, const std::vector<int32_t>& unit) {
  Distance widest = Distance::self;
  for (int32_t rank : unit) widest = std::max(widest, topology.distance(unit[0], rank));
  return widest == Distance::nvlink       ? Level::nvlink
         : widest == Distance::shared_gpu ? Level::shared_gpu
                                          : Level::node;
}

int widest_of(const Split& split) {
  size_t widest = split.units.size();
  for (const auto& unit : split.units) widest = std::max(widest, unit.size());
  return static_cast<int>(widest);
}

constexpr uint32_t phases = 4;

}  // namespace

class BlockComposer::Moves {
 public:
  void add(Ref from, Ref to) {
    if (from.count == 0) return;
    if (!moves_.empty()) {
      auto& [last_from, last_to] = moves_.back();
      auto follows = [](const Ref& a, const Ref& b) {
        return a.space == b.space && a.offset + a.count == b.offset;
      };
      if (follows(last_from, from) && follows(last_to, to)) {
        last_from.count += from.count;
        last_to.count += to.count;
        return;
      }
    }
    moves_.emplace_back(from, to);
  }

  bool one() const { return moves_.size() == 1; }
  Ref from() const { return moves_[0].first; }
  Ref to() const { return moves_[0].second; }

  // What is where it belongs stays there.
  void put(ScheduleBuilder& builder, std::span<const Id> after, std::vector<Id>& done) const {
    for (const auto& [from, to] : moves_)
      if (from != to) done.push_back(builder.copy(from, to, after));
  }

 private:
  std::vector<std::pair<Ref, Ref>> moves_;
};

BlockComposer::BlockComposer(const Problem& problem, const Place& place, int rails, int root,
                             Setting setting, ScheduleBuilder& builder)
    : BlockComposer(problem, place, root, setting, builder,
                    split_units(place.topology, rails, root)) {}

BlockComposer::BlockComposer(const Problem& problem, const Place& place, int root, Setting setting,
                             ScheduleBuilder& builder, Split split)
    : Composition(problem, place, setting, widest_of(split), phases, builder),
      nranks_(place.nranks()),
      root_(root),
      split_(std::move(split)),
      mine_(static_cast<size_t>(split_.unit_of[static_cast<size_t>(place.rank)])),
      slice_(-1),
      level_(level_of(place.topology, unit())),
      finished_(static_cast<size_t>(setting.depth)) {
  for (int s = 0; s < split_.slices; ++s)
    if (split_.owner(mine_, s) == rank_) slice_ = s;
}

std::vector<int32_t> BlockComposer::team(int slice) const {
  std::vector<int32_t> ranks;
  for (size_t u = 0; u < split_.units.size(); ++u) ranks.push_back(split_.owner(u, slice));
  return ranks;
}

BlockComposer::Layout BlockComposer::layout(std::span<const Block> blocks, uint64_t piece,
                                            uint64_t number) const {
  Layout l;
  for (const Block& block : blocks)
    l.size.push_back(cut({Space::input, 0, block.count}, piece, number).count);
  l.begin.resize(l.size.size());
  for (const auto& ranks : split_.units) {
    uint64_t all = 0;
    for (int32_t rank : ranks) {
      l.begin[static_cast<size_t>(rank)] = all;
      all += l.size[static_cast<size_t>(rank)];
    }
    l.unit_size.push_back(all);
  }
  for (int s = 0; s < split_.slices; ++s) {
    l.slice_at.push_back(l.total);
    l.at.emplace_back();
    for (uint64_t all : l.unit_size) {
      l.at.back().push_back(l.total);
      l.total += part(all, split_.slices, s).count;
    }
    l.slice_size.push_back(l.total - l.slice_at.back());
  }
  return l;
}

std::vector<BlockComposer::Bit> BlockComposer::bits(const Layout& l, int rank) const {
  const auto r = static_cast<size_t>(rank);
  const auto u = static_cast<size_t>(split_.unit_of[r]);
  const uint64_t begin = l.begin[r], end = begin + l.size[r];
  std::vector<Bit> all;
  for (int s = 0; s < split_.slices; ++s) {
    const Block slice = part(l.unit_size[u], split_.slices, s);
    const uint64_t low = std::max(begin, slice.offset);
    const uint64_t high = std::min(end, slice.offset + slice.count);
    if (low < high)
      all.push_back(
          {s, low - begin, l.at[static_cast<size_t>(s)][u] + low - slice.offset, high - low});
  }
  return all;
}

Pieces BlockComposer::cut_blocks(uint64_t longest, uint64_t steps_of_one) const {
  const auto ranks = static_cast<uint64_t>(nranks_);
  // Steps of a schedule cost memory and time to make.
  constexpr uint64_t most_steps = 32768;
  const uint64_t most = std::clamp<uint64_t>(most_steps / steps_of_one, 1, most_chunks());
  return pieces(longest, std::max<uint64_t>(1, setting_.chunk_bytes / ranks),
                info(problem_.agreed.dtype).extent, most);
}

Composition::Strand BlockComposer::begin_chunk(uint64_t number) {
  reuse_scratch(number);
  return {static_cast<uint32_t>(number), finished_[number % finished_.size()]};
}

void BlockComposer::end_chunk(const Strand& strand) {
  finished_[strand.number % finished_.size()] = strand.ends;
}

// Allgather: what a unit's ranks have is cut into slices and collected at their owners, which gather
// it among the units, each slice by itself, and then give it to all of their unit.
Status BlockComposer::allgather_chunk(Strand& strand, std::span<const Block> blocks,
                                      const Pieces& cuts) {
  const Layout l = layout(blocks, cuts.size, strand.number);
  const Block& my_block = blocks[static_cast<size_t>(rank_)];
  const Ref mine = cut(own_block(problem_, rank_, my_block), cuts.size, strand.number);
  const uint64_t shift = strand.number * cuts.size;
  auto place = [&](int rank, const Bit& bit) {
    return output_ref(blocks[static_cast<size_t>(rank)].offset + shift + bit.in_block, bit.count);
  };
  // Where the output has the blocks in this order without gaps, they go straight there.
  Moves out;
  std::vector<std::vector<Bit>> bits_of;
  for (int r = 0; r < nranks_; ++r) bits_of.push_back(bits(l, r));
  auto all_out = [&](Ref whole, bool own) {
    Moves moves;
    for (const auto& ranks : split_.units)
      for (int32_t r : ranks)
        for (const Bit& bit : bits_of[static_cast<size_t>(r)])
          if (own || r != rank_) moves.add(slice(whole, bit.at, bit.count), place(r, bit));
    return moves;
  };
  const Moves straight = all_out({Space::scratch, 0, l.total}, true);
  const bool direct = split_.slices == 1 && straight.one();
  const Ref whole = direct ? straight.to() : scratch(strand, l.total);

  std::vector<Id> done;
  const bool few_owners = static_cast<size_t>(split_.slices) < unit().size();
  if (setting_.inner == Inner::groups && few_owners) {
    const uint64_t here = l.unit_size[mine_];
    const Ref room = scratch(strand, here);
    std::vector<uint64_t> counts;
    for (int32_t r : unit()) counts.push_back(l.size[static_cast<size_t>(r)]);
    group_step(strand, level(), Coll::allgather, 0, unit(), counts, mine, room, 2 * strand.number);
    if (slice_ >= 0) {
      const Block block = part(here, split_.slices, slice_);
      strand.ends = {builder_.join(std::vector{
          strand.ends[0],
          builder_.copy(slice(room, block),
                        slice(whole, l.at[static_cast<size_t>(slice_)][mine_], block.count),
                        std::span<const Id>(strand.ends))})};
    }
  } else {
    for (const Bit& bit : bits_of[static_cast<size_t>(rank_)]) {
      const int owner = split_.owner(mine_, bit.slice);
      const Ref from = slice(mine, bit.in_block, bit.count), to = slice(whole, bit.at, bit.count);
      if (owner != rank_)
        done.push_back(
            builder_.send(owner, from, std::span<const Id>(strand.ends), tag(strand, 0)));
      else if (from != to)
        done.push_back(builder_.copy(from, to, std::span<const Id>(strand.ends)));
    }
    for (int32_t r : unit())
      for (const Bit& bit : bits_of[static_cast<size_t>(r)])
        if (r != rank_ && bit.slice == slice_)
          done.push_back(builder_.recv(r, slice(whole, bit.at, bit.count),
                                       std::span<const Id>(strand.ends), tag(strand, 0)));
    if (!done.empty()) strand.ends = {builder_.join(done)};
  }

  Ref held;
  if (slice_ >= 0) {
    const auto s = static_cast<size_t>(slice_);
    held = slice(whole, l.slice_at[s], l.slice_size[s]);
    std::vector<uint64_t> counts;
    for (uint64_t all : l.unit_size) counts.push_back(part(all, split_.slices, slice_).count);
    TUTTI_TRY(sub(
        strand,
        {.algorithm = setting_.top, .coll = Coll::allgatherv, .in_place = true, .counts = counts},
        team(slice_), {}, held, tag(strand, 1)));
    strand.ends = {builder_.join(strand.ends)};
  }
  if (unit().size() > 1) {
    if (setting_.inner == Inner::groups) {
      const bool one = split_.slices == 1;
      const std::vector<uint64_t> counts =
          one ? std::vector<uint64_t>{} : by_member(unit(), owner_of(), l.slice_size);
      group_step(strand, level(), one ? Coll::bcast : Coll::allgather, one ? owner_of()[0] : 0,
                 unit(), counts, held, whole, 2 * strand.number + 1);
    } else {
      TUTTI_TRY(gather_inside(strand, level(), unit(), owner_of(), l.slice_size, held, whole,
                              tag(strand, 2)));
    }
    strand.ends = {builder_.join(strand.ends)};
  }
  if (direct) return {};
  done = strand.ends;
  all_out(whole, false).put(builder_, strand.ends, done);
  if (!problem_.local.in_place)
    done.push_back(builder_.copy(mine, output_ref(my_block.offset + shift, mine.count), {}));
  strand.ends = {builder_.join(done)};
  return {};
}

Status BlockComposer::allgather() {
  const std::vector<Block> blocks = output_blocks(problem_, nranks_);
  uint64_t longest = 0;
  for (const Block& block : blocks) longest = std::max(longest, block.count);
  const Pieces cuts = cut_blocks(longest, static_cast<uint64_t>(nranks_));
  for (uint64_t c = 0; c < cuts.count; ++c) {
    Strand strand = begin_chunk(c);
    TUTTI_TRY(allgather_chunk(strand, blocks, cuts));
    end_chunk(strand);
  }
  return {};
}

// Reduce-scatter: the way back. Slices are reduced to their owners inside, then among the units of
// each owner's team, and go to the ranks whose blocks they are.
Status BlockComposer::reduce_scatter_chunk(Strand& strand, std::span<const Block> blocks,
                                           const Pieces& cuts, Ref own, Ref result,
                                           std::vector<Id>& reads) {
  const Layout l = layout(blocks, cuts.size, strand.number);
  const uint64_t shift = strand.number * cuts.size;
  Moves in;
  for (const auto& ranks : split_.units)
    for (int32_t r : ranks)
      for (const Bit& bit : bits(l, r))
        in.add(slice(own, blocks[static_cast<size_t>(r)].offset + shift + bit.in_block, bit.count),
               {Space::scratch, bit.at, bit.count});
  Ref whole;
  const bool direct = split_.slices == 1 && in.one();
  if (direct) {
    whole = in.from();
  } else {
    whole = scratch(strand, l.total);
    Moves moves;
    for (const auto& ranks : split_.units)
      for (int32_t r : ranks)
        for (const Bit& bit : bits(l, r))
          moves.add(
              slice(own, blocks[static_cast<size_t>(r)].offset + shift + bit.in_block, bit.count),
              slice(whole, bit.at, bit.count));
    std::vector<Id> done = strand.ends;
    moves.put(builder_, strand.ends, done);
    strand.ends = {builder_.join(done)};
    reads.push_back(strand.ends[0]);
  }
  Ref held = whole;
  if (unit().size() > 1) {
    held = slice_ < 0 ? Ref{} : scratch(strand, l.slice_size[static_cast<size_t>(slice_)]);
    TUTTI_TRY(reduce_inside(strand, level(), unit(), owner_of(), l.slice_size, whole, held,
                            tag(strand, 0)));
    strand.ends = {builder_.join(strand.ends)};
  }
  Ref mine;
  if (slice_ >= 0) {
    std::vector<uint64_t> counts;
    for (uint64_t all : l.unit_size) counts.push_back(part(all, split_.slices, slice_).count);
    mine = scratch(strand, counts[mine_]);
    TUTTI_TRY(sub(strand,
                  {.algorithm = setting_.top, .coll = Coll::reduce_scatter, .counts = counts},
                  team(slice_), held, mine, tag(strand, 1)));
    strand.ends = {builder_.join(strand.ends)};
  }
  if (direct) reads.push_back(strand.ends[0]);
  std::vector<Id> done = strand.ends;
  for (int32_t r : unit())
    for (const Bit& bit : bits(l, r)) {
      const int owner = split_.owner(mine_, bit.slice);
      const Ref to = slice(result, shift + bit.in_block, bit.count);
      if (owner == rank_) {
        const Ref from = slice(mine, bit.at - l.at[static_cast<size_t>(slice_)][mine_], bit.count);
        done.push_back(
            r == rank_ ? builder_.copy(from, to, std::span<const Id>(strand.ends))
                       : builder_.send(r, from, std::span<const Id>(strand.ends), tag(strand, 2)));
      } else if (r == rank_) {
        done.push_back(builder_.recv(owner, to, std::span<const Id>(strand.ends), tag(strand, 2)));
      }
    }
  strand.ends = {builder_.join(done)};
  return {};
}

Status BlockComposer::reduce_scatter() {
  const std::vector<Block> blocks = agreed_blocks(problem_.agreed, nranks_);
  uint64_t longest = 0;
  for (const Block& block : blocks) longest = std::max(longest, block.count);
  const Pieces cuts = cut_blocks(longest, static_cast<uint64_t>(nranks_));
  const bool in_place = problem_.local.in_place;
  const Ref own = own_vector(in_place, agreed_total(problem_.agreed, nranks_));
  const uint64_t n = blocks[static_cast<size_t>(rank_)].count;
  // In place, the result overwrites what other chunks read.
  const Ref result = in_place ? builder_.scratch(n) : output_ref(0, n);
  std::vector<Id> reads;
  for (uint64_t c = 0; c < cuts.count; ++c) {
    Strand strand = begin_chunk(c);
    TUTTI_TRY(reduce_scatter_chunk(strand, blocks, cuts, own, result, reads));
    end_chunk(strand);
    if (in_place) reads.insert(reads.end(), strand.ends.begin(), strand.ends.end());
  }
  if (in_place) builder_.copy(result, output_ref(0, n), std::span<const Id>(reads));
  return {};
}

namespace {

// The units by their place in the tree whose root is the root's unit.
struct UnitTree {
  int units, root_unit;
  KnomialTree tree;

  UnitTree(const Split& split, size_t mine, int root, int radix)
      : units(static_cast<int>(split.units.size())),
        root_unit(split.unit_of[static_cast<size_t>(root)]),
        tree(mod(static_cast<int>(mine) - root_unit, units), units,
             radix == 0 ? std::max(2, units) : radix) {}
  size_t unit(int v) const { return static_cast<size_t>((v + root_unit) % units); }
  // Ranks of the units v .. v + span - 1, in that order.
  std::vector<int32_t> ranks(const Split& split, int v, int span) const {
    std::vector<int32_t> all;
    for (int i = v; i < v + span; ++i) {
      const auto& here = split.units[unit(i)];
      all.insert(all.end(), here.begin(), here.end());
    }
    return all;
  }
};

}  // namespace

// Gather: blocks go to one rank of every unit, and between these up a tree.
void BlockComposer::gather_chunk(Strand& strand, const Pieces& cuts, int radix) {
  const uint64_t block = problem_.agreed.count;
  const uint64_t shift = strand.number * cuts.size;
  const uint64_t n = cut({Space::input, 0, block}, cuts.size, strand.number).count;
  const auto after = std::vector<Id>(strand.ends);
  const UnitTree units(split_, mine_, root_, radix);
  const int v = mod(static_cast<int>(mine_) - units.root_unit, units.units);
  auto times = [&](size_t ranks) { return ranks * n; };
  auto place = [&](int rank) { return output_ref(static_cast<uint64_t>(rank) * block + shift, n); };
  const bool at_root = rank_ == root_;
  const Ref mine = cut(own_block(problem_, rank_, {static_cast<uint64_t>(rank_) * block, block}),
                       cuts.size, strand.number);
  std::vector<Id> done;
  if (slice_ < 0) {
    strand.ends = {builder_.send(split_.owner(mine_, 0), mine, after, tag(strand, 0))};
    return;
  }
  const Ref all =
      at_root ? Ref{} : scratch(strand, times(units.ranks(split_, v, units.tree.span).size()));
  for (size_t i = 0; i < unit().size(); ++i) {
    const int32_t r = unit()[i];
    const Ref to = at_root ? place(r) : slice(all, times(i), n);
    if (r != rank_)
      done.push_back(builder_.recv(r, to, after, tag(strand, 0)));
    else if (mine != to)
      done.push_back(builder_.copy(mine, to, after));
  }
  for (const auto& child : units.tree.children) {
    const int32_t peer = split_.owner(units.unit(child.v), 0);
    const std::vector<int32_t> ranks = units.ranks(split_, child.v, child.span);
    if (!at_root) {
      const size_t before = units.ranks(split_, v, child.v - v).size();
      done.push_back(builder_.recv(peer, slice(all, times(before), times(ranks.size())), after,
                                   tag(strand, 1)));
      continue;
    }
    Moves straight;
    for (size_t i = 0; i < ranks.size(); ++i)
      straight.add({Space::scratch, times(i), n}, place(ranks[i]));
    if (n == 0 || straight.one()) {
      done.push_back(builder_.recv(peer, n == 0 ? Ref{} : straight.to(), after, tag(strand, 1)));
      continue;
    }
    const Ref landing = scratch(strand, times(ranks.size()));
    const Id got = builder_.recv(peer, landing, after, tag(strand, 1));
    Moves out;
    for (size_t i = 0; i < ranks.size(); ++i) out.add(slice(landing, times(i), n), place(ranks[i]));
    out.put(builder_, {&got, 1}, done);
  }
  strand.ends = {builder_.join(done)};
  if (at_root) return;
  strand.ends = {builder_.send(split_.owner(units.unit(units.tree.parent), 0), all, strand.ends,
                               tag(strand, 1))};
}

Status BlockComposer::gather(int radix) {
  const Pieces cuts = cut_blocks(problem_.agreed.count, static_cast<uint64_t>(nranks_));
  for (uint64_t c = 0; c < cuts.count; ++c) {
    Strand strand = begin_chunk(c);
    gather_chunk(strand, cuts, radix);
    end_chunk(strand);
  }
  return {};
}

// Scatter: the way back of a gather.
void BlockComposer::scatter_chunk(Strand& strand, const Pieces& cuts, int radix) {
  const uint64_t block = problem_.agreed.count;
  const uint64_t shift = strand.number * cuts.size;
  const uint64_t n = cut({Space::input, 0, block}, cuts.size, strand.number).count;
  const auto after = std::vector<Id>(strand.ends);
  const UnitTree units(split_, mine_, root_, radix);
  const int v = mod(static_cast<int>(mine_) - units.root_unit, units.units);
  auto times = [&](size_t ranks) { return ranks * n; };
  auto place = [&](int rank) { return input_ref(static_cast<uint64_t>(rank) * block + shift, n); };
  const bool at_root = rank_ == root_;
  const Ref result = output_ref(shift, n);
  if (slice_ < 0) {
    strand.ends = {builder_.recv(split_.owner(mine_, 0), result, after, tag(strand, 0))};
    return;
  }
  std::vector<Id> got(after);
  Ref all;
  if (!at_root) {
    const size_t ranks = units.ranks(split_, v, units.tree.span).size();
    all = ranks == 1 ? result : scratch(strand, times(ranks));
    got = {
        builder_.recv(split_.owner(units.unit(units.tree.parent), 0), all, after, tag(strand, 1))};
  }
  std::vector<Id> done(got);
  for (auto child = units.tree.children.rbegin(); child != units.tree.children.rend(); ++child) {
    const int32_t peer = split_.owner(units.unit(child->v), 0);
    const std::vector<int32_t> ranks = units.ranks(split_, child->v, child->span);
    if (!at_root) {
      const size_t before = units.ranks(split_, v, child->v - v).size();
      done.push_back(
          builder_.send(peer, slice(all, times(before), times(ranks.size())), got, tag(strand, 1)));
      continue;
    }
    Moves straight;
    for (size_t i = 0; i < ranks.size(); ++i)
      straight.add(place(ranks[i]), {Space::scratch, times(i), n});
    if (n == 0 || straight.one()) {
      done.push_back(builder_.send(peer, n == 0 ? Ref{} : straight.from(), after, tag(strand, 1)));
      continue;
    }
    const Ref leaving = scratch(strand, times(ranks.size()));
    Moves pack;
    for (size_t i = 0; i < ranks.size(); ++i)
      pack.add(place(ranks[i]), slice(leaving, times(i), n));
    std::vector<Id> packed;
    pack.put(builder_, after, packed);
    done.push_back(builder_.send(peer, leaving, packed, tag(strand, 1)));
  }
  for (size_t i = 0; i < unit().size(); ++i) {
    const int32_t r = unit()[i];
    const Ref from = at_root ? place(r) : slice(all, times(i), n);
    if (r != rank_)
      done.push_back(builder_.send(r, from, got, tag(strand, 0)));
    else if (from != result && !(at_root && problem_.local.in_place))
      done.push_back(builder_.copy(from, result, got));
  }
  strand.ends = {builder_.join(done)};
}

Status BlockComposer::scatter(int radix) {
  const Pieces cuts = cut_blocks(problem_.agreed.count, static_cast<uint64_t>(nranks_));
  for (uint64_t c = 0; c < cuts.count; ++c) {
    Strand strand = begin_chunk(c);
    scatter_chunk(strand, cuts, radix);
    end_chunk(strand);
  }
  return {};
}

// Alltoall: what a unit has for another goes as one message. Unit u's owner of slice v mod slices
// collects what its unit sends to unit v, sends it to v's owner of slice u mod slices, and hands on
// what comes from there.
Status BlockComposer::alltoall() {
  // An owner sorts what each of its unit gets from each rank that it deals with.
  size_t widest = 0;
  for (const auto& ranks : split_.units) widest = std::max(widest, ranks.size());
  const uint64_t at_owner = widest / static_cast<uint64_t>(split_.slices);
  const Pieces cuts =
      cut_blocks(problem_.agreed.count, (4 + at_owner) * static_cast<uint64_t>(nranks_));
  for (uint64_t c = 0; c < cuts.count; ++c) {
    Strand strand = begin_chunk(c);
    alltoall_chunk(strand, cuts);
    end_chunk(strand);
  }
  return {};
}

void BlockComposer::alltoall_chunk(Strand& strand, const Pieces& cuts) {
  const uint64_t block = problem_.agreed.count;
  const uint64_t shift = strand.number * cuts.size;
  const uint64_t n = cut({Space::input, 0, block}, cuts.size, strand.number).count;
  const bool in_place = problem_.local.in_place;
  const Space source = in_place ? Space::output : Space::input;
  const std::vector<Id> after = strand.ends;
  auto at = [&](int rank) { return static_cast<uint64_t>(rank) * block + shift; };
  auto from_me = [&](int rank) { return Ref{source, at(rank), n}; };
  auto to_me = [&](int rank) { return output_ref(at(rank), n); };
  auto size = [&](size_t u) { return static_cast<uint64_t>(split_.units[u].size()); };
  const uint64_t here = size(mine_);
  // Units that the owner of a slice here deals with.
  auto units_of = [&](int slice) {
    std::vector<size_t> all;
    for (size_t u = static_cast<size_t>(slice); u < split_.units.size();
         u += static_cast<size_t>(split_.slices))
      if (u != mine_) all.push_back(u);
    return all;
  };
  std::vector<Id> read;  // steps after which nothing reads what is sent
  // Ranges of the own vector as one: in place if they follow each other, else packed.
  auto pack = [&](const std::vector<size_t>& units, Ref* range) {
    Moves moves;
    uint64_t all = 0;
    for (size_t u : units)
      for (int32_t r : split_.units[u]) {
        moves.add(from_me(r), {Space::scratch, all, n});
        all += n;
      }
    if (moves.one()) {
      *range = moves.from();
      return after;
    }
    *range = scratch(strand, all);
    Moves into;
    all = 0;
    for (size_t u : units)
      for (int32_t r : split_.units[u]) {
        into.add(from_me(r), slice(*range, all, n));
        all += n;
      }
    std::vector<Id> packed;
    into.put(builder_, after, packed);
    read.insert(read.end(), packed.begin(), packed.end());
    return packed.empty() ? after : packed;
  };
  struct Traffic {
    Ref out, in;
    std::vector<Id> filled;
    Id got;
  };
  std::vector<Traffic> traffic;
  const std::vector<size_t> mine = slice_ < 0 ? std::vector<size_t>{} : units_of(slice_);
  for (size_t u : mine)
    traffic.push_back(
        {scratch(strand, here * size(u) * n), scratch(strand, here * size(u) * n), {}, no_step});
  for (int s = 0; s < split_.slices; ++s) {
    const std::vector<size_t> units = units_of(s);
    const int owner = split_.owner(mine_, s);
    if (owner == rank_ || units.empty()) continue;
    Ref range;
    const std::vector<Id> packed = pack(units, &range);
    read.push_back(builder_.send(owner, range, packed, tag(strand, 0)));
  }
  // Collects at the owner: [sender][receiver] for each unit.
  for (size_t i = 0; i < unit().size() && !mine.empty(); ++i) {
    const int32_t r = unit()[i];
    uint64_t all = 0;
    for (size_t u : mine) all += size(u) * n;
    Ref landing;
    Id got = no_step;
    if (r != rank_ && mine.size() > 1) landing = scratch(strand, all);
    if (r != rank_ && mine.size() == 1) landing = slice(traffic[0].out, i * all, all);
    if (r != rank_) got = builder_.recv(r, landing, after, tag(strand, 0));
    all = 0;
    for (size_t k = 0; k < mine.size(); ++k) {
      const Ref to = slice(traffic[k].out, i * size(mine[k]) * n, size(mine[k]) * n);
      Moves moves;
      if (r != rank_) moves.add(slice(landing, all, to.count), to);
      for (size_t j = 0; r == rank_ && j < size(mine[k]); ++j)
        moves.add(from_me(split_.units[mine[k]][j]), slice(to, j * n, n));
      if (r != rank_ && mine.size() == 1)
        traffic[k].filled.push_back(got);
      else
        moves.put(builder_, r == rank_ ? std::span<const Id>(after) : std::span<const Id>(&got, 1),
                  traffic[k].filled);
      all += to.count;
    }
  }
  for (const Traffic& t : traffic) read.insert(read.end(), t.filled.begin(), t.filled.end());
  // Inside the unit, blocks go straight.
  std::vector<Id> done;
  Moves landed;
  for (int32_t r : unit()) {
    if (r == rank_) {
      if (!in_place) done.push_back(builder_.copy(from_me(r), to_me(r), after));
      continue;
    }
    read.push_back(builder_.send(r, from_me(r), after, tag(strand, 3)));
    const Ref landing = in_place ? scratch(strand, n) : to_me(r);
    const Id got = builder_.recv(r, landing, after, tag(strand, 3));
    (in_place ? read : done).push_back(got);
    if (in_place) landed.add(landing, to_me(r));
  }
  // In place, a block may come only when all of them have been read.
  read.insert(read.end(), after.begin(), after.end());
  const Id all_read = builder_.join(read);
  landed.put(builder_, {&all_read, 1}, done);
  done.push_back(all_read);
  for (size_t k = 0; k < mine.size(); ++k) {
    const int peer =
        split_.owner(mine[k], static_cast<int>(mine_ % static_cast<size_t>(split_.slices)));
    traffic[k].filled.insert(traffic[k].filled.end(), after.begin(), after.end());
    done.push_back(builder_.send(peer, traffic[k].out, traffic[k].filled, tag(strand, 1)));
    traffic[k].got = builder_.recv(peer, traffic[k].in, after, tag(strand, 1));
  }
  // Hands on what came.
  for (size_t i = 0; i < unit().size() && !mine.empty(); ++i) {
    const int32_t r = unit()[i];
    Ref leaving;
    uint64_t all = 0;
    for (size_t u : mine) all += size(u) * n;
    if (r != rank_) leaving = scratch(strand, all);
    std::vector<Id> packed;
    all = 0;
    for (size_t k = 0; k < mine.size(); ++k) {
      Moves moves;
      for (size_t j = 0; j < size(mine[k]); ++j) {
        const Ref from = slice(traffic[k].in, (j * here + i) * n, n);
        moves.add(from, r == rank_ ? to_me(split_.units[mine[k]][j]) : slice(leaving, all, n));
        all += n;
      }
      const std::vector<Id> before = {traffic[k].got, r == rank_ ? all_read : traffic[k].got};
      moves.put(builder_, before, packed);
    }
    if (r == rank_)
      done.insert(done.end(), packed.begin(), packed.end());
    else
      done.push_back(builder_.send(r, leaving, packed, tag(strand, 2)));
  }
  for (const Traffic& t : traffic) done.push_back(t.got);
  for (int s = 0; s < split_.slices; ++s) {
    const std::vector<size_t> units = units_of(s);
    const int owner = split_.owner(mine_, s);
    if (owner == rank_ || units.empty()) continue;
    Moves straight, out;
    uint64_t all = 0;
    for (size_t u : units)
      for (int32_t r : split_.units[u]) {
        straight.add({Space::scratch, all, n}, to_me(r));
        all += n;
      }
    if (straight.one()) {
      done.push_back(builder_.recv(owner, straight.to(), {all_read}, tag(strand, 2)));
      continue;
    }
    const Ref landing = scratch(strand, all);
    const Id got = builder_.recv(owner, landing, after, tag(strand, 2));
    done.push_back(got);
    all = 0;
    for (size_t u : units)
      for (int32_t r : split_.units[u]) {
        out.add(slice(landing, all, n), to_me(r));
        all += n;
      }
    const std::vector<Id> before = {got, all_read};
    out.put(builder_, before, done);
  }
  strand.ends = {builder_.join(done)};
}

// Scan: inside the units, which are runs of ranks; then the reductions of whole units are scanned
// by their last ranks, and what lies below a unit is put to everything in it.
Status BlockComposer::scan_chunk(Strand& strand, const Pieces& cuts) {
  const uint64_t count = problem_.agreed.count;
  const bool exclusive = problem_.agreed.coll == Coll::exscan;
  const Ref own = cut(own_vector(problem_.local.in_place, count), cuts.size, strand.number);
  const Ref result = cut(output_ref(0, count), cuts.size, strand.number);
  const int index = split_.index_of[static_cast<size_t>(rank_)];
  const int last = static_cast<int>(unit().size()) - 1;
  const Algorithm* inside = find_algorithm(problem_.agreed.coll, "recursive_doubling");
  // Of the unit up to this rank; exclusive: before it.
  Ref here = own, total = own;
  if (last > 0) {
    here = scratch(strand, own.count);
    TUTTI_TRY(sub(strand, {.algorithm = inside, .coll = problem_.agreed.coll}, unit(), own, here,
                  tag(strand, 0)));
    strand.ends = {builder_.join(strand.ends)};
    total = here;
    // Nobody asks for that of the last unit.
    if (exclusive && index == last && mine_ + 1 < split_.units.size()) {
      total = scratch(strand, own.count);
      strand.ends = {builder_.join(std::vector{
          strand.ends[0], builder_.reduce(here, own, total, std::span<const Id>(strand.ends))})};
    }
  }
  const Ref below = scratch(strand, own.count);
  if (index == last) {
    std::vector<int32_t> team;
    for (const auto& ranks : split_.units) team.push_back(ranks.back());
    TUTTI_TRY(sub(strand, {.algorithm = setting_.top, .coll = Coll::exscan}, team, total, below,
                  tag(strand, 1)));
    strand.ends = {builder_.join(strand.ends)};
  }
  if (mine_ > 0 && last > 0) {
    TUTTI_TRY(sub(
        strand,
        {.algorithm = find_algorithm(Coll::bcast, "binomial"), .coll = Coll::bcast, .root = last},
        unit(), {}, below, tag(strand, 2)));
    strand.ends = {builder_.join(strand.ends)};
  }
  Id end = no_step;
  const std::span<const Id> after(strand.ends);
  if (exclusive && index == 0) {
    if (mine_ > 0) end = builder_.copy(below, result, after);
  } else if (mine_ > 0) {
    end = builder_.reduce(below, here, result, after);
  } else if (here != result) {
    end = builder_.copy(here, result, after);
  }
  strand.ends.push_back(end);
  strand.ends = {builder_.join(strand.ends)};
  return {};
}

Status BlockComposer::scan() {
  const Pieces cuts = pieces(problem_.agreed.count, setting_.chunk_bytes,
                             info(problem_.agreed.dtype).extent, most_chunks());
  for (uint64_t c = 0; c < cuts.count; ++c) {
    Strand strand = begin_chunk(c);
    TUTTI_TRY(scan_chunk(strand, cuts));
    end_chunk(strand);
  }
  return {};
}

}  // namespace tutti
