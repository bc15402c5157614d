#include "tune/cost.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace tutti {

namespace {

// Measured figures are of the project's test machines: the 2-core machine without devices, the
// 32-core machine with two H200 joined by NVLink (NV18). No fabric was measured: those figures are
// nominal.
constexpr Figure node_latency = {
    "node latency", 285, "measured: half of an 8 B allreduce of 2 ranks, 0.57 us, 32-core machine"};
constexpr Figure node_gap = {"node ns per byte", 0.18,
                             "measured: allgather of 2 MiB by 2 ranks, 191 us, 32-core machine"};
constexpr Figure node_overhead = {
    "node overhead of an end", 142.5,
    "half of the latency: nothing but the two cores works on a message through shared memory"};
constexpr Figure nvlink_latency = {
    "NVLink latency", 4460,
    "measured: a queued copy to the peer, 3.7 us, and a flag one way, 0.76 us, two H200"};
constexpr Figure nvlink_gap = {"NVLink ns per byte", 1.0 / 391,
                               "measured: copy engine to the peer, 391 GB/s, two H200"};
constexpr Figure nvlink_send = {"NVLink overhead of the sender", 3700,
                                "measured: launch alone, two H200; the receiver's core has none"};
constexpr Figure shared_group_latency = {
    "shared GPU group step", 10500,
    "measured: allreduce of 8 B by 4 ranks on 2 GPUs, with MPS or by a leader, 10.1 to 10.7 us"};
constexpr Figure shared_group_gap = {
    "shared GPU group ns per byte", 1 / 480.0,
    "measured: eight sources reduced in rank order, 480 GB/s of result, H200"};
constexpr Figure nvlink_group_latency = {
    "NVLink group step", 7500, "measured: allreduce of 8 B, launched, 7.2 to 8.0 us, two H200"};
constexpr Figure nvlink_group_gap = {
    "NVLink group ns per byte", 1 / 313.0,
    "measured: reduce-scatter of 64 MiB, 107 us for the 32 MiB that a GPU passes on, two H200"};
constexpr Figure node_group_latency = {
    "node group step", 420,
    "measured: half of an 8 B allreduce of 8 ranks, 0.84 us, 32-core machine"};
constexpr Figure node_group_gap = {
    "node group ns per byte", 0.236,
    "measured: allreduce of 2 MiB by 8 ranks, 868 us for the 3.5 MiB that a rank passes on, "
    "32-core machine"};
constexpr Figure reduce_gap = {
    "reduce ns per byte", 3 / 22.0,
    "measured: bench/reduce_bench, parts of 1 MiB, 22 GB/s of two parts and the result"};
constexpr Figure copy_gap = {"copy ns per byte", 2 / 19.0,
                             "measured: bench/reduce_bench, memcpy of 16 MiB, 19 GB/s both ways"};
constexpr Figure device_reduce_gap = {
    "device reduce ns per byte", 1 / 610.0,
    "measured: sum of two vectors by 16 CTAs, 610 GB/s of result, H200"};
constexpr Figure device_copy_gap = {
    "device copy ns per byte", 1 / 1340.0,
    "measured: as the sum of two vectors by 264 CTAs, 1340 GB/s of result, H200"};
constexpr Figure tcp_latency = {
    "fabric latency", 7500, "measured: UCX tcp half round trip at 8 B, 6 to 9 us, 2-core machine"};
constexpr Figure tcp_send = {
    "fabric overhead of the sender", 3750,
    "half of the latency: there was no wire between the two cores that it was measured on"};
constexpr Figure tcp_recv = {"fabric overhead of the receiver", 3750, tcp_send.source};
constexpr Figure tcp_gap = {"fabric ns per byte", 1 / 1.25, "nominal: 10 Gb/s"};
constexpr Figure ib_latency = {"fabric latency", 1300,
                               "nominal: small messages over InfiniBand NDR"};
constexpr Figure ib_send = {"fabric overhead of the sender", 500,
                            "estimate: posting a message takes a host 0.5 to 1 us"};
constexpr Figure ib_recv = {"fabric overhead of the receiver", 300,
                            "estimate: polling for a completion takes a host 0.3 us"};
constexpr Figure ib_gap = {"fabric ns per byte", 1 / 48.5, "nominal: 400 Gb/s less framing"};

constexpr Figure switch_latency = {
    "switches' group step", 7400,
    "published: HPC-X 3.3.0, Open MPI with HCOLL and SHARP, allreduce of 4 B by 128 nodes, host"};
constexpr Figure switch_gap = {"switches' group ns per byte", 1 / (0.95 * 48.5),
                               "published: streaming at about 95 % of the line rate, Graham et "
                               "al., ISC 2020; of the nominal gap"};

// In the order in which model_of() reads them.
using Set = std::array<Figure, 20>;
constexpr Set set_of(const Figure& latency, const Figure& gap, const Figure& send,
                     const Figure& recv) {
  return {node_latency,
          node_gap,
          node_overhead,
          nvlink_latency,
          nvlink_gap,
          nvlink_send,
          latency,
          gap,
          send,
          recv,
          reduce_gap,
          copy_gap,
          device_reduce_gap,
          device_copy_gap,
          shared_group_latency,
          shared_group_gap,
          nvlink_group_latency,
          nvlink_group_gap,
          node_group_latency,
          node_group_gap};
}

constexpr Set tcp = set_of(tcp_latency, tcp_gap, tcp_send, tcp_recv);
constexpr Set ib = set_of(ib_latency, ib_gap, ib_send, ib_recv);

constexpr CostModel model_of(const char* name, const Set& f, const LinkCost& switches) {
  return {.name = name,
          .node = {f[0].value, f[1].value, f[2].value, f[2].value},
          .nvlink = {f[3].value, f[4].value, f[5].value, 0},
          .fabric = {f[6].value, f[7].value, f[8].value, f[9].value},
          .host = {f[10].value, f[11].value},
          .device = {f[12].value, f[13].value},
          .shared_gpu_group = {f[14].value, f[15].value},
          .nvlink_group = {f[16].value, f[17].value},
          .node_group = {f[18].value, f[19].value},
          .switch_group = switches};
}

// Only InfiniBand has switches that compute.
constexpr auto ib_figures = [] {
  std::array<Figure, std::tuple_size_v<Set> + 2> all{};
  std::copy(ib.begin(), ib.end(), all.begin());
  all[ib.size()] = switch_latency;
  all[ib.size() + 1] = switch_gap;
  return all;
}();
// The first is the standard one.
constexpr CostModel models[] = {model_of("ib", ib, {switch_latency.value, switch_gap.value}),
                                model_of("tcp", tcp, {})};
constexpr std::span<const Figure> sets[] = {ib_figures, tcp};

}  // namespace

std::span<const CostModel> cost_models() {
  return models;
}

const CostModel* find_cost_model(std::string_view name) {
  for (const CostModel& model : models)
    if (name == model.name) return &model;
  return nullptr;
}

std::span<const Figure> figures(const CostModel& model) {
  for (size_t i = 0; i < std::size(models); ++i)
    if (std::string_view(model.name) == models[i].name) return sets[i];
  return {};
}

namespace {

// Messages one after the other, or the busiest core where that has to do with more.
double messages_ns(const Load& load, const LinkCost& link) {
  return std::max(load.messages * link.latency_ns,
                  load.sends * link.send_ns + load.recvs * link.recv_ns);
}

}  // namespace

uint64_t cost_ns(const Estimate& e, const Scale& scale, const CostModel& model) {
  // Messages between ranks go through memory of the node; between GPUs of a domain over NVLink. Word
  // without bytes needs no GPU.
  const bool word = e.near.bytes + e.far.bytes + e.group_bytes + e.switch_bytes == 0;
  const Level level = word ? Level::node : scale.inside;
  const LinkCost& inside = level == Level::node ? model.node : model.nvlink;
  const LinkCost& group = model.group(level);
  const WorkCost& work = scale.devices ? model.device : model.host;
  const double near_messages = messages_ns(e.near, inside);
  const double far_messages = messages_ns(e.far, model.fabric);
  const double near = near_messages + e.near.bytes * inside.ns_per_byte +
                      e.groups * group.latency_ns + e.group_bytes * group.ns_per_byte +
                      e.reduced * work.reduce_ns_per_byte + e.copied * work.copy_ns_per_byte;
  if (e.switch_steps > 0 && model.switch_group.latency_ns == 0) return ~uint64_t{0};
  const double shared = std::max(1.0, e.far.streams / scale.nics);
  const double far = far_messages + e.far.bytes * model.fabric.ns_per_byte * shared +
                     e.switch_steps * model.switch_group.latency_ns +
                     e.switch_bytes * model.switch_group.ns_per_byte / scale.nics;
  const double overlaps =
      e.in_turn ? std::min(near - near_messages, far - far_messages) : std::min(near, far);
  const double hidden = overlaps * (1 - 1 / std::max(1.0, e.chunks));
  return static_cast<uint64_t>(std::llround(near + far - hidden));
}

double group_step_ns(const Group& group, double whole, const CostModel& model) {
  // Without data it is word between members, whatever would carry data.
  const bool word = whole == 0 && group.level != Level::fabric;
  const LinkCost& cost = model.group(word ? Level::node : group.level);
  const double moved =
      group_bytes(group.coll, group.level, static_cast<double>(group.members.size()), whole);
  return cost.latency_ns + moved * cost.ns_per_byte;
}

}  // namespace tutti
