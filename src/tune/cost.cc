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
constexpr Figure nvlink_latency = {"NVLink latency", 760, "measured: a flag one way, two H200"};
constexpr Figure nvlink_gap = {"NVLink ns per byte", 1.0 / 365,
                               "measured: kernels writing both ways, 365 GB/s, two H200"};
constexpr Figure group_latency = {"group step", 7200,
                                  "measured: launch and wait on a pinned flag, 7.2 us, two H200"};
constexpr Figure group_gap = {"group ns per byte", nvlink_gap.value, nvlink_gap.source};
constexpr Figure reduce_gap = {
    "reduce ns per byte", 3 / 22.0,
    "measured: bench/reduce_bench, parts of 1 MiB, 22 GB/s of two parts and the result"};
constexpr Figure copy_gap = {"copy ns per byte", 2 / 19.0,
                             "measured: bench/reduce_bench, memcpy of 16 MiB, 19 GB/s both ways"};
constexpr Figure tcp_latency = {
    "fabric latency", 7500, "measured: UCX tcp half round trip at 8 B, 6 to 9 us, 2-core machine"};
constexpr Figure tcp_gap = {"fabric ns per byte", 1 / 1.25, "nominal: 10 Gb/s"};
constexpr Figure ib_latency = {"fabric latency", 1300,
                               "nominal: small messages over InfiniBand NDR"};
constexpr Figure ib_gap = {"fabric ns per byte", 1 / 48.5, "nominal: 400 Gb/s less framing"};

using Set = std::array<Figure, 10>;
constexpr Set set_of(const Figure& latency, const Figure& gap) {
  return {node_latency, node_gap,   nvlink_latency, nvlink_gap,    latency,
          gap,          reduce_gap, copy_gap,       group_latency, group_gap};
}

constexpr Set tcp = set_of(tcp_latency, tcp_gap), ib = set_of(ib_latency, ib_gap);

constexpr CostModel model_of(const char* name, const Set& f) {
  return {.name = name,
          .node = {f[0].value, f[1].value},
          .nvlink = {f[2].value, f[3].value},
          .fabric = {f[4].value, f[5].value},
          .reduce_ns_per_byte = f[6].value,
          .copy_ns_per_byte = f[7].value,
          .group = {f[8].value, f[9].value}};
}

// The first is the standard one.
constexpr CostModel models[] = {model_of("ib", ib), model_of("tcp", tcp)};
constexpr const Set* sets[] = {&ib, &tcp};

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
    if (std::string_view(model.name) == models[i].name) return *sets[i];
  return {};
}

uint64_t cost_ns(const Estimate& e, const Scale& scale, const CostModel& model) {
  // Messages between ranks go through memory of the node; between GPUs of a domain over NVLink.
  const LinkCost& inside = scale.devices ? model.nvlink : model.node;
  const double near = e.near.messages * inside.latency_ns + e.near.bytes * inside.ns_per_byte +
                      e.groups * model.group.latency_ns + e.group_bytes * model.group.ns_per_byte +
                      e.reduced * model.reduce_ns_per_byte + e.copied * model.copy_ns_per_byte;
  const double shared = std::max(1.0, e.far.streams / scale.nics);
  const double far =
      e.far.messages * model.fabric.latency_ns + e.far.bytes * model.fabric.ns_per_byte * shared;
  const double hidden = std::min(near, far) * (1 - 1 / std::max(1.0, e.chunks));
  return static_cast<uint64_t>(std::llround(near + far - hidden));
}

}  // namespace tutti
