// Collectives that switches of the fabric perform (SHARP), as group steps by contract.
//
// Whether the switches can is a fact of the topology; whether anything here can run such a step is for
// who chooses (Tuning::switches). Both must hold. What they can do is a prior by generation, from NVIDIA's
// public documents and clients; a room that runs these steps asks its library for the rest.
#pragma once

#include <string_view>

#include "coll/registry.hpp"

namespace tutti {

// Generations: 1 Switch-IB 2, 2 Quantum, 3 Quantum-2 and later.
// The order in which switches sum is their tree's, so what is agreed to keep an order stays out; how they
// round sums of 16 bits is not published, so those go there as fp32 or not at all.
inline bool switches_do(const Agreed& agreed, const Topology& topology) {
  const int generation = topology.sharp;
  if (generation == 0 || topology.units().size() < 2) return false;
  if (agreed.coll == Coll::barrier) return true;
  if (agreed.coll != Coll::allreduce) return false;
  const DtypeInfo& type = info(agreed.dtype);
  // Without streaming, what the buffers of a group hold at once: 8 of 256 bytes.
  if (generation == 1 && agreed.count * type.extent > 2048) return false;
  const bool least_most_sum = agreed.op == Op::sum || agreed.op == Op::min || agreed.op == Op::max;
  switch (agreed.dtype) {
    case Dtype::f32:
    case Dtype::f64:
      return least_most_sum;
    case Dtype::f16:
    case Dtype::bf16:
      return agreed.wide && least_most_sum;
    case Dtype::i8:
    case Dtype::u8:
      if (generation < 3) return false;
      break;
    case Dtype::i16:
    case Dtype::u16:
      if (generation < 2) return false;
      break;
    case Dtype::i32:
    case Dtype::u32:
    case Dtype::i64:
    case Dtype::u64:
      break;
    default:
      return false;
  }
  switch (agreed.op) {
    case Op::prod:
    case Op::minloc:
    case Op::maxloc:
    case Op::user:
      return false;
    default:
      return true;
  }
}

// Whether the algorithm, or what a composition has on top, is one of these.
inline bool is_in_network(const Algorithm& algorithm) {
  return std::string_view(algorithm.scheme) == "in_network";
}
inline bool uses_switches(const Algorithm& algorithm, const Params& params) {
  if (is_in_network(algorithm)) return true;
  for (size_t i = 0; i < algorithm.parameters.size(); ++i) {
    const Param& param = algorithm.parameters[i];
    if (std::string_view(param.name) != "top") continue;
    std::string_view names = param.choices;
    for (uint64_t skip = params[i]; skip > 0; --skip) names.remove_prefix(names.find('|') + 1);
    if (names.substr(0, names.find('|')) == "in_network") return true;
  }
  return false;
}

// The step of one rank: all members at once.
inline Group in_network_group(Coll coll, std::span<const int32_t> members) {
  Group group;
  group.coll = coll;
  group.level = Level::fabric;
  group.members.assign(members.begin(), members.end());
  return group;
}

// All ranks at once, where each has its own node, as one process a node is what switches serve.
inline bool in_network_applies(const Agreed& agreed, const Topology& topology, const Params&) {
  if (!switches_do(agreed, topology)) return false;
  return topology.units().size() == static_cast<size_t>(topology.nranks);
}
inline Status generate_in_network(const Problem& problem, const Place& place,
                                  ScheduleBuilder& builder) {
  std::vector<int32_t> all;
  for (int r = 0; r < place.nranks(); ++r) all.push_back(r);
  const uint64_t n = problem.agreed.count;
  const Ref from = {problem.local.in_place ? Space::output : Space::input, 0, n};
  const Ref to = {Space::output, 0, n};
  builder.group(in_network_group(problem.agreed.coll, all), from, to,
                std::span<const ScheduleBuilder::Id>());
  return {};
}
// The whole goes up to the switches and comes back once.
inline Estimate estimate_in_network(const Agreed&, const Scale& s, const Params&) {
  Estimate e;
  e.switch_steps = 1;
  e.switch_bytes = s.bytes;
  return e;
}

}  // namespace tutti
