// Estimate: what a call costs by an algorithm, in messages and bytes on the longest path: input of
// the cost model (src/tune/cost.hpp). Closed forms, so that a choice among thousands of ranks takes
// microseconds.
#pragma once

#include <cstdint>

#include "core/problem.hpp"
#include "sched/step.hpp"
#include "topo/topology.hpp"

namespace tutti {

// Messages and bytes one after the other, how many such streams leave a node at once, and how many
// messages the busiest rank sends and receives in all. Those may be left out where they are no more than
// the ones that come after each other.
struct Load {
  double messages = 0;
  double bytes = 0;
  double streams = 1;
  double sends = 0;
  double recvs = 0;
};

// Bytes that a member of a group step passes on when the whole that the members share is `whole`
// long: all but its own part, twice where the whole is first reduced and then gathered.
// Switches of the fabric get the whole once.
double group_bytes(Coll coll, Level level, double members, double whole);

struct Estimate {
  Load near;           // inside nodes
  Load far;            // between nodes
  double reduced = 0;  // bytes that a rank combines
  double copied = 0;   // bytes that it moves in its own memory
  double groups = 0;   // group steps one after the other, and bytes that a rank gives to them
  double group_bytes = 0;
  double switch_steps = 0;  // the same of the switches of the fabric
  double switch_bytes = 0;
  double chunks = 1;     // pieces whose near and far parts overlap
  bool in_turn = false;  // near and far messages of one way come in turn: only their bytes overlap
};

// The numbers that closed forms are made of. They take it that nodes hold runs of ranks; where
// ranks go round the nodes, flat algorithms by doubling look cheaper than they are.
struct Scale {
  double ranks = 1;
  double near = 1;      // most ranks of a unit: a node, or an NVLink domain of several
  double far = 1;       // units
  double nics = 1;      // fewest NICs that serve the ranks of a unit
  double log_near = 0;  // rounds of doubling inside nodes and between them
  double log_far = 0;
  bool folds = false;  // ranks are no power of two
  double bytes = 0;  // of the whole vector: all blocks of an allgather, of one rank in an alltoall
  bool devices = false;  // ranks have GPUs
  // The nearest level that holds every unit together.
  Level inside = Level::node;

  Scale(const Agreed& agreed, const Topology& topology);
  double rounds(double radix) const;
  double chunks(double n, uint64_t chunk_bytes, double most) const;
  // Adds to the far load if there are several nodes, else to the near one.
  void add(Estimate& estimate, double messages, double bytes, double streams = 1) const;
  // The same for what goes through all ranks at once: links inside nodes carry the bytes too, at the
  // same time. Messages one after the other go along a ring or chain of all ranks, down a tree, or
  // between all pairs of ranks, some at once.
  void ring(Estimate& estimate, double messages, double bytes, double streams = 1) const;
  void tree(Estimate& estimate, double messages, double bytes, double streams = 1) const;
  void pairs(Estimate& estimate, double messages, double bytes, double streams = 1) const;
  // What the busiest rank of a tree sends and receives.
  void handle(Estimate& estimate, double sends, double recvs) const;
  // Rounds at distances 1, 2, 4, ... inside nodes that reach over the ends of nodes too: how many rounds
  // with all ranks of a node they are worth on the links between nodes.
  double crossings() const;
  // The same call among `members` ranks, one a node, on `part` of the bytes.
  Scale between(double members, double part) const;

 private:
  // `share` of the messages stays inside nodes.
  void stream(Estimate& estimate, double messages, double share, double bytes,
              double streams) const;
};

}  // namespace tutti
