// Hierarchy: collectives put together from levels: ranks that share a GPU, an NVLink domain, a
// node, the fabric.
//
// At each level the ranks are parted into units. Inside a unit the vector is cut into `slices`,
// each of which one member (its owner) gets by a reduce-scatter; the owners of one slice in all
// units go on to the next level as a team; coming back, the owners' slices are gathered in the
// unit. Units may differ in size and need not be runs of ranks: the number of slices is that of the
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
  int slice = -1;  // this rank's; -1: none
};

struct Plan {
  std::vector<Tier> tiers;
  // Ranks that this one meets at the top; empty if it owns nothing there.
  std::vector<int32_t> team;
  // Largest number of ranks that work together in any phase; equal on all ranks.
  int widest = 1;
};

// `rails` bounds slices; 0: as many as units and NICs allow. With a root (not -1) it owns its slice
// at every level.
Plan plan_levels(const Topology& topology, int rank, int rails, int root);
// Whether every unit of every level is a run of ranks, as ordered operations need. Equal on all
// ranks.
bool runs_of_ranks(const Topology& topology);
// Whether there is more than one level: else a flat algorithm does the same with less.
bool has_levels(const Topology& topology);

// How phases inside units are done.
enum class Inner : uint8_t { messages, groups };

// Cost of a composition whose top is done by `top`. `rails` as in plan_levels.
Estimate estimate_levels(const Algorithm& top, const Scale& scale, int rails, uint64_t chunk_bytes,
                         Inner inner);

// Writes chunk after chunk, so that phases of neighbouring chunks overlap: what leads to the top of
// chunk c + depth comes after all of chunk c. Group steps of one rank form one chain, equal on all
// ranks of a unit, so engines may serialise them.
class Composer {
 public:
  struct Setting {
    Inner inner = Inner::messages;
    const Algorithm* top = nullptr;  // of the collective that the levels end in
    uint64_t chunk_bytes = 1 << 20;
    int depth = 2;
  };

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
  struct Chunk {
    Ref own, result;
    uint32_t number;
    std::vector<Passage> at;            // before each tier, then at the top
    std::vector<std::vector<Id>> left;  // per tier: steps that end its way down
    std::vector<Id> ends;               // what the next phase waits for
  };
  // Scratch that chunks depth apart share.
  struct Arena {
    std::vector<Ref> refs;
    size_t next = 0;
  };

  enum class Phase : uint8_t { down, up, top };
  static constexpr uint32_t phases = 7;  // down and up at three levels, and the top

  enum class Way : uint8_t { both, down, up };  // allreduce, reduce, bcast
  Status run(Way way);
  Status down(Chunk& chunk);
  Status top(Chunk& chunk);
  Status up(Chunk& chunk);
  Status down_tier(Chunk& chunk, size_t tier);
  Status up_tier(Chunk& chunk, size_t tier);
  void group_step(Chunk& chunk, const Tier& tier, Coll coll, Ref from, Ref to, uint32_t group_tag);
  Status sub(Chunk& chunk, const Algorithm& algorithm, Coll coll, int root, bool in_place,
             std::span<const uint64_t> counts, std::span<const int32_t> team, Ref from, Ref to,
             uint32_t tag);
  uint32_t tag(const Chunk& chunk, size_t tier, Phase phase) const;
  Ref scratch(const Chunk& chunk, uint64_t count);
  Ref slice_of(const Tier& tier, Ref range, int slice) const;
  int index_in(std::span<const int32_t> team) const;

  const Problem& problem_;
  int rank_;
  int root_;
  Setting setting_;
  ScheduleBuilder& builder_;
  Plan plan_;
  uint32_t stride_;  // tags of one phase
  std::vector<Arena> arenas_;
  Id last_group_ = no_step;
  Schedule part_;
};

}  // namespace tutti
