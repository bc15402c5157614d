#include "coll/estimate.hpp"

#include <algorithm>
#include <cmath>

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

double group_bytes(Coll coll, Level level, double members, double whole) {
  if (coll == Coll::barrier) return 0;
  if (level == Level::fabric) return whole;
  return (coll == Coll::allreduce ? 2 : 1) * whole * (1 - 1 / std::max(1.0, members));
}

Scale::Scale(const Agreed& agreed, const Topology& topology)
    : ranks(topology.nranks), bytes(whole_bytes(agreed, topology.nranks)) {
  const auto units = topology.units();
  far = static_cast<double>(units.size());
  bool one_gpu = true, one_domain = true;
  int fewest = 0;
  for (const auto& unit : units) {
    near = std::max(near, static_cast<double>(unit.size()));
    const int32_t first = unit[0];
    for (int32_t rank : unit) {
      devices = devices || topology.gpu_of(rank) >= 0;
      one_gpu = one_gpu && topology.gpu_of(rank) >= 0 &&
                topology.gpu_of(rank) == topology.gpu_of(first) &&
                topology.node_of(rank) == topology.node_of(first);
      one_domain = one_domain && topology.nvlink_of(rank) >= 0 &&
                   topology.nvlink_of(rank) == topology.nvlink_of(first);
    }
    const int count = topology.nics_of(unit);
    fewest = fewest == 0 ? count : std::min(fewest, count);
  }
  inside = one_gpu ? Level::shared_gpu : one_domain ? Level::nvlink : Level::node;
  nics = std::max(1, fewest);
  if (agreed.wide) bytes *= 2;  // fp32 of 16-bit elements
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

void Scale::stream(Estimate& estimate, double messages, double share, double bytes_sent,
                   double streams) const {
  add(estimate, far > 1 ? messages * (1 - share) : messages, bytes_sent, streams);
  if (far <= 1 || near <= 1) return;
  estimate.near.messages += messages * share;
  estimate.near.bytes += bytes_sent;
  estimate.chunks = ranks;
}

void Scale::ring(Estimate& estimate, double messages, double bytes_sent, double streams) const {
  stream(estimate, messages, 1 - far / ranks, bytes_sent, streams);
  estimate.in_turn = true;
}

void Scale::tree(Estimate& estimate, double messages, double bytes_sent, double streams) const {
  const double levels = log_near + log_far;
  stream(estimate, messages, levels == 0 ? 0 : log_near / levels, bytes_sent, streams);
  estimate.in_turn = true;
}

void Scale::pairs(Estimate& estimate, double messages, double bytes_sent, double streams) const {
  stream(estimate, std::max(1.0, messages), near / ranks, bytes_sent, streams);
  Load& load = far > 1 ? estimate.far : estimate.near;
  const double peers = ranks - (far > 1 ? near : 1);
  load.sends += peers;
  load.recvs += peers;
  if (far <= 1 || near <= 1) return;
  estimate.near.sends += near - 1;
  estimate.near.recvs += near - 1;
  estimate.near.messages = std::max(1.0, estimate.near.messages);
  estimate.far.messages = std::max(1.0, estimate.far.messages);
}

void Scale::handle(Estimate& estimate, double sends, double recvs) const {
  const double levels = log_near + log_far;
  const double inside = levels == 0 ? 0 : log_near / levels;
  estimate.near.sends += sends * inside;
  estimate.near.recvs += recvs * inside;
  estimate.far.sends += sends * (1 - inside);
  estimate.far.recvs += recvs * (1 - inside);
}

double Scale::crossings() const {
  if (far <= 1) return 0;
  double sum = 0;
  for (double d = 1; d < near; d *= 2) sum += std::max(1.0, d / nics);
  return sum / std::max(1.0, near / nics);
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
