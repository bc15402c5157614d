// Cost model: nanoseconds of an estimate on a kind of machine, as in LogGP (A. Alexandrov, M.
// Ionescu, K. Schauser, C. Scheiman, SPAA 1995) with parameters per level: a message costs its
// level's latency (L + 2o there), each of its ends that much of a rank's core (o), a byte its level's
// gap (G), and streams that leave a node share its NICs. The gap of messages (g) is that of the core.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "coll/estimate.hpp"
#include "sched/schedule.hpp"

namespace tutti {

struct LinkCost {
  double latency_ns = 0;  // of a message with no bytes, one way, software included
  double ns_per_byte = 0;
  // What of the latency is work of the sender's core and of the receiver's.
  double send_ns = 0;
  double recv_ns = 0;
};

// A rank's own work on its memory, a byte of the result.
struct WorkCost {
  double reduce_ns_per_byte = 0;
  double copy_ns_per_byte = 0;
};

struct CostModel {
  const char* name = "";
  LinkCost node;    // ranks of a node through shared memory
  LinkCost nvlink;  // GPUs of a domain
  LinkCost fabric;  // through one NIC
  WorkCost host, device;
  // A group step at its level: its start and end, and a byte that a member passes on in it.
  LinkCost shared_gpu_group, nvlink_group, node_group;
  LinkCost
      switch_group;  // by the fabric's switches; no latency: no figures, and never chosen by cost

  const LinkCost& group(Level level) const {
    return level == Level::shared_gpu ? shared_gpu_group
           : level == Level::nvlink   ? nvlink_group
           : level == Level::fabric   ? switch_group
                                      : node_group;
  }
};

// Where a number of a shipped model comes from.
struct Figure {
  const char* name;  // "node latency"
  double value;
  const char* source;
};

// Parameter sets that come with tutti.
std::span<const CostModel> cost_models();
const CostModel* find_cost_model(std::string_view name);
std::span<const Figure> figures(const CostModel& model);

// Whole nanoseconds: equal on all ranks, so that ties are ties everywhere. The largest number where the
// model has no figures for it.
uint64_t cost_ns(const Estimate& estimate, const Scale& scale, const CostModel& model);

// A group step alone, from when all members have entered; `whole`: bytes of the whole that they share.
double group_step_ns(const Group& group, double whole, const CostModel& model);

}  // namespace tutti
