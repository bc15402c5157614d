#include "coll/estimate.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "sched/contract.hpp"

namespace tutti {

namespace {

double whole_bytes(const Agreed& agreed, int nranks) {
  const auto extent = static_cast<double>(info(agreed.dtype).extent);
  switch (agreed.coll) {
    case Coll::allgather:
    case Coll::allgatherv:
    case Coll::gather:
    case Coll::scatter:
    case Coll::alltoall:
    case Coll::reduce_scatter:
    case Coll::reduce_scatter_block:
      return extent * static_cast<double>(agreed_total(agreed, nranks));
    default:
      return extent * static_cast<double>(agreed.count);
  }
}

double log2_up(double n) {
  return n <= 1 ? 0 : std::ceil(std::log2(n));
}

}  // namespace

Scale::Scale(const Agreed& agreed, const Topology& topology)
    : ranks(topology.nranks), bytes(whole_bytes(agreed, topology.nranks)) {
  const auto nodes = topology.ranks_by_node();
  far = static_cast<double>(nodes.size());
  for (const auto& node : nodes) near = std::max(near, static_cast<double>(node.size()));
  size_t fewest = 0;
  for (const auto& node : nodes) {
    const auto at = static_cast<size_t>(topology.node_of(node[0]));
    for (int32_t rank : node) devices = devices || topology.gpu_of(rank) >= 0;
    if (at >= topology.nodes.size() || topology.nodes[at].nics.empty()) continue;
    size_t count = 0;
    for (const Nic& nic : topology.nodes[at].nics) count += nic.compute ? 1 : 0;
    fewest = fewest == 0 ? count : std::min(fewest, count);
  }
  nics = static_cast<double>(std::max<size_t>(1, fewest));
  log_near = log2_up(near);
  log_far = log2_up(far);
  folds = (topology.nranks & (topology.nranks - 1)) != 0;
}

double Scale::rounds(double radix) const {
  double count = 0;
  for (double reach = 1; reach < ranks; reach *= radix) ++count;
  return count;
}

double Scale::chunks(double n, uint64_t chunk_bytes, double most) const {
  const double chunk = std::max(1.0, static_cast<double>(chunk_bytes));
  return std::clamp(std::ceil(n / chunk), 1.0, most);
}

void Scale::add(Estimate& estimate, double messages, double bytes_sent, double streams) const {
  Load& load = far > 1 ? estimate.far : estimate.near;
  load.messages += messages;
  load.bytes += bytes_sent;
  load.streams = std::max(load.streams, streams);
}

void Scale::stream(Estimate& estimate, double messages, double bytes_sent, double streams) const {
  add(estimate, messages, bytes_sent, streams);
  if (far <= 1 || near <= 1) return;
  estimate.near.bytes += bytes_sent;
  estimate.chunks = ranks;
}

Scale Scale::between(double members, double part) const {
  Scale scale = *this;
  scale.ranks = scale.far = members;
  scale.near = 1;
  scale.log_near = 0;
  scale.log_far = log2_up(members);
  const auto whole = static_cast<uint64_t>(members);
  scale.folds = (whole & (whole - 1)) != 0;
  scale.bytes = bytes * part;
  return scale;
}

}  // namespace tutti
