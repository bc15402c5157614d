// Hierarchy: collectives put together from levels: ranks that share a GPU, an NVLink domain, a
// node, the fabric.
//
// Reductions and broadcasts of one vector go through every level (Composer). At each the ranks are
// parted into units. Inside a unit the vector is cut into `slices`, each of which one member (its
// owner) gets by a reduce-scatter; the owners of one slice in all units go on to the next level as a
// team; coming back, the owners' slices are gathered in the unit. Collectives of blocks go through
// two levels (BlockComposer): units that reach each other over the fabric only, and what is inside.
// Units may differ in size and need not be runs of ranks: the number of slices is that of the
// smallest unit, or of the NICs where these are fewer; members beyond own nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "coll/patterns.hpp"
#include "coll/registry.hpp"
#include "sched/graft.hpp"

namespace tutti {

// One level as one rank sees it.
struct Tier {
  Level level = Level::node;
  // Ranks that work together here, in the order of the lowest ranks whose parts they hold.
  std::vector<int32_t> unit;
  std::vector<int32_t> owner_of;  // per slice: index into unit, ascending

  int slices = 1;
  int slice = -1;   // this rank's; -1: none
  int source = -1;  // whose vector is scattered over the owners, if in this unit; -1: nobody's here
};

struct Plan {
  std::vector<Tier> tiers;
  // Ranks that this one meets at the top; empty if it owns nothing there.
  std::vector<int32_t> team;
  // The one of them that has what the root broadcasts; -1: no root.
  int source = -1;
  // Largest number of ranks that work together in any phase; equal on all ranks.
  int widest = 1;
  // Slices of all levels together: vectors of a multiple of it are cut into equal ones; equal on all ranks.
  uint64_t grain = 1;
};

// `rails` bounds slices; 0: as many as units and NICs allow. With a root (not -1) it owns its slice
// at every level; the teams of other slices have the owners in its unit in its stead.
Plan plan_levels(const Topology& topology, int rank, int rails, int root);

// Two levels, as all ranks see them.
struct Split {
  std::vector<std::vector<int32_t>> units;     // Topology::units()
  std::vector<std::vector<int32_t>> owner_of;  // per unit and slice: index into the unit, ascending
  std::vector<int32_t> unit_of, index_of;      // per rank
  int slices = 1;

  int32_t owner(size_t unit, int slice) const {
    return units[unit][static_cast<size_t>(owner_of[unit][static_cast<size_t>(slice)])];
  }
};
Split split_units(const Topology& topology, int rails, int root);

// Whether every unit of every level is a run of ranks, as ordered operations need. Equal on all
// ranks.
bool runs_of_ranks(const Topology& topology);
// Whether there is more than one level: else a flat algorithm does the same with less.
bool has_levels(const Topology& topology);
// Whether there are units of several ranks that only the fabric joins.
bool has_units(const Topology& topology);

// How phases inside units are done.
enum class Inner : uint8_t { messages, groups };

// Parameters that compositions share.
inline constexpr Param chunk_param = {
    "chunk", Param::Unit::bytes, 1 << 20,
    1,       uint64_t{1} << 40,  "Largest piece that goes through the levels at once."};
inline constexpr Param inner_param = {
    "inner", Param::Unit::choice, 0, 0, 1, "What works inside a unit.", "messages|groups"};
inline constexpr Param rails_param = {
    "rails", Param::Unit::number, 0, 0, 64, "Slices side by side; 0: as units and NICs allow."};
// Whether levels and units of ranks let the composition do the call, with `top` between units.
bool levels_apply(const Algorithm& top, const Agreed& agreed, const Topology& topology);
bool units_apply(const Algorithm* top, const Agreed& agreed, const Topology& topology);

// Cost of a composition of a vector whose top is done by `top`. `rails` as in plan_levels.
Estimate estimate_levels(const Algorithm& top, const Scale& scale, int rails, uint64_t chunk_bytes,
                         Inner inner);
// The same of a composition of blocks. `top` is nullptr where units exchange directly.
Estimate estimate_blocks(Coll coll, const Algorithm* top, const Scale& scale, int rails,
                         uint64_t chunk_bytes, Inner inner);

// What compositions are made of: phases of one chunk after another, written into one schedule.
// Chunks that are `depth` apart share scratch, so the later one comes after all of the earlier.
// Group steps of one rank inside units form one chain, equal on all ranks of a unit, so engines may
// serialise them; those of the fabric's switches form another, so that both overlap.
class Composition {
 public:
  struct Setting {
    Inner inner = Inner::messages;
    const Algorithm* top = nullptr;  // of the collective that the levels end in
    uint64_t chunk_bytes = 1 << 20;
    int depth = 2;
  };

 protected:
  // A chunk's way through the phases.
  struct Strand {
    uint32_t number = 0;
    std::vector<Id> ends;  // what the next phase waits for
  };
  // A flat algorithm among a team, as a phase.
  struct Part {
    const Algorithm* algorithm;
    Coll coll;
    int root = 0;
    bool in_place = false;
    std::span<const uint64_t> counts = {};  // of reduce_scatter and allgatherv
  };

  // `widest`: most ranks that work together in any phase; `phases`: how many there are.
  Composition(const Problem& problem, const Place& place, Setting setting, int widest,
              uint32_t phases, ScheduleBuilder& builder);

  Status sub(Strand& strand, const Part& what, std::span<const int32_t> team, Ref from, Ref to,
             uint32_t tag);
  void group_step(Strand& strand, Level level, Coll coll, int root,
                  std::span<const int32_t> members, std::span<const uint64_t> counts, Ref from,
                  Ref to, uint32_t tag);
  // What each member has of a vector that the owners' slices make up.
  static std::vector<uint64_t> by_member(std::span<const int32_t> unit,
                                         std::span<const int32_t> owner_of,
                                         std::span<const uint64_t> sizes);
  // What lies in slices at owners, from all to all of a unit, and back.
  Status reduce_inside(Strand& strand, Level level, std::span<const int32_t> unit,
                       std::span<const int32_t> owner_of, std::span<const uint64_t> sizes, Ref from,
                       Ref to, uint32_t tag);
  Status gather_inside(Strand& strand, Level level, std::span<const int32_t> unit,
                       std::span<const int32_t> owner_of, std::span<const uint64_t> sizes, Ref from,
                       Ref to, uint32_t tag);
  // First tag of a phase.
  uint32_t tag(const Strand& strand, uint32_t phase) const {
    return (strand.number * phases_ + phase) * stride_;
  }
  // Most chunks that tags can tell apart.
  uint64_t most_chunks() const;
  // Chunk `number` may take the scratch of the one `depth` before.
  void reuse_scratch(uint64_t number);
  Ref scratch(const Strand& strand, uint64_t count);
  int index_in(std::span<const int32_t> team) const;

  const Problem& problem_;
  int rank_;
  Setting setting_;
  ScheduleBuilder& builder_;

 private:
  struct Arena {
    std::vector<Ref> refs;
    size_t next = 0;
  };
  uint32_t phases_;
  uint32_t stride_;  // tags of one phase
  std::vector<Arena> arenas_;
  Id last_group_ = no_step, last_switch_step_ = no_step;
  Schedule part_;
};

// Collectives of one vector, through every level.
class Composer : Composition {
 public:
  using Composition::Setting;
  Composer(const Problem& problem, const Place& place, int rails, int root, Setting setting,
           ScheduleBuilder& builder);

  Status allreduce();
  Status reduce();
  Status bcast();
  Status barrier();

 private:
  // A range on its way through the levels.
  struct Passage {
    Ref own;     // what this rank holds of it
    Ref result;  // where it is to end
  };
  struct Chunk : Strand {
    Ref own, result;
    std::vector<Passage> at;            // before each tier, then at the top
    std::vector<std::vector<Id>> left;  // per tier: steps that end its way down
  };

  enum class Phase : uint8_t { down, up, top };
  static constexpr uint32_t phases = 7;  // down and up at three levels, and the top

  enum class Way : uint8_t { both, down, up };  // allreduce, reduce, bcast
  Composer(const Problem& problem, const Place& place, int root, Setting setting,
           ScheduleBuilder& builder, Plan plan);
  std::vector<Block> chunks_of(uint64_t n) const;
  Status run(Way way);
  Status down(Chunk& chunk);
  Status top(Chunk& chunk);
  void scatter(Chunk& chunk);
  Status up(Chunk& chunk);
  Status down_tier(Chunk& chunk, size_t tier);
  Status up_tier(Chunk& chunk, size_t tier);
  uint32_t phase_tag(const Chunk& chunk, size_t tier, Phase phase) const;

  int root_;
  Plan plan_;
};

// Collectives of blocks, through two levels.
class BlockComposer : Composition {
 public:
  using Composition::Setting;
  BlockComposer(const Problem& problem, const Place& place, int rails, int root, Setting setting,
                ScheduleBuilder& builder);

  Status allgather();
  Status reduce_scatter();
  // Trees of `radix` between units; 0: straight to or from the root.
  Status gather(int radix);
  Status scatter(int radix);
  Status alltoall();
  Status scan();

 private:
  // Blocks of a chunk by slice, then by unit: what a unit's ranks have in rank order, cut at slices.
  struct Layout {
    std::vector<uint64_t> size;                  // per rank
    std::vector<uint64_t> begin;                 // per rank: in its unit
    std::vector<uint64_t> unit_size;             // per unit
    std::vector<std::vector<uint64_t>> at;       // per slice and unit: in the layout
    std::vector<uint64_t> slice_at, slice_size;  // per slice: all units
    uint64_t total = 0;
  };
  // A part of a rank's block and where it lies in the layout.
  struct Bit {
    int slice;
    uint64_t in_block, at, count;
  };
  // A range and where its copy goes; neighbours on both sides become one.
  class Moves;

  BlockComposer(const Problem& problem, const Place& place, int root, Setting setting,
                ScheduleBuilder& builder, Split split);
  Level level() const { return level_; }
  const std::vector<int32_t>& unit() const { return split_.units[mine_]; }
  const std::vector<int32_t>& owner_of() const { return split_.owner_of[mine_]; }
  std::vector<int32_t> team(int slice) const;
  Layout layout(std::span<const Block> blocks, uint64_t piece, uint64_t number) const;
  std::vector<Bit> bits(const Layout& layout, int rank) const;
  // Chunks of blocks: `longest` of them is cut.
  Pieces cut_blocks(uint64_t longest, uint64_t steps_of_one) const;
  Strand begin_chunk(uint64_t number);
  void end_chunk(const Strand& strand);

  Status allgather_chunk(Strand& strand, std::span<const Block> blocks, const Pieces& cuts);
  Status reduce_scatter_chunk(Strand& strand, std::span<const Block> blocks, const Pieces& cuts,
                              Ref own, Ref result, std::vector<Id>& reads);
  void gather_chunk(Strand& strand, const Pieces& cuts, int radix);
  void scatter_chunk(Strand& strand, const Pieces& cuts, int radix);
  void alltoall_chunk(Strand& strand, const Pieces& cuts);
  Status scan_chunk(Strand& strand, const Pieces& cuts);

  int nranks_;
  int root_;
  Split split_;
  size_t mine_;                            // this rank's unit
  int slice_;                              // that this rank owns, or -1
  Level level_;                            // of group steps
  std::vector<std::vector<Id>> finished_;  // ends of the chunks before, by depth
};

}  // namespace tutti
