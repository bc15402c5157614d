#include "comm/communicator.hpp"

#include <algorithm>
#include <map>

#include "base/config.hpp"
#include "comm/node_communicator.hpp"
#include "comm/span_communicator.hpp"
#include "pml/module.hpp"

namespace tutti {

namespace {

// Why all calls go below, from facts equal on all ranks; nullptr where set-up is worth trying.
const char* useless(const BaseComm& base) {
  if (base.nranks < 2) return "one rank";
  if (base.nodes.empty()) return "ranks of unknown nodes";
  std::map<int32_t, int> sizes;
  for (int32_t node : base.nodes)
    if (++sizes[node] > shm::max_members) return "more ranks on a node than the board holds";
  if (sizes.size() > 1 && !base.network)
    return "several nodes, and TUTTI_NET gives no network between them";
  if (sizes.size() > 1 && base.nranks > net::max_ranks)
    return "more ranks than the network's messages can tell apart";
  return nullptr;
}

}  // namespace

bool may_open_network(const Config& config) {
  if (config.net_module != "auto") return config.net_module != "none";
  return net::installed("ucx") && !net::rdma_devices();
}

uint32_t calls_wanted(const Job& job, const Config& config) {
  SpanTuning tuning;
  if (job.network) tuning.open(config, false);
  uint32_t calls = tuning.calls;
  for (uint32_t i = 0; i < coll_count; ++i)
    if (NodeCommunicator::may_want(static_cast<Coll>(i), job.devices)) calls |= 1u << i;
  return calls;
}

std::unique_ptr<Communicator> Communicator::open(const BaseComm& base, Engine& engine,
                                                 const Config& config) {
  const char* why = useless(base);
  const bool several =
      std::any_of(base.nodes.begin(), base.nodes.end(), [](int32_t node) { return node != 0; });
  if (why == nullptr && several) {
    auto comm = std::make_unique<SpanCommunicator>(base, engine, config);
    comm->begin_setup(std::make_unique<Setup>(base, Process::get(config), config,
                                              !engine.hooks().single_threaded));
    return comm;
  }
  auto comm = std::make_unique<NodeCommunicator>(base, engine, config);
  if (why != nullptr)
    comm->stay_below(why);
  else
    comm->begin_setup(std::make_unique<Setup>(base, Process::get(config), config));
  return comm;
}

}  // namespace tutti
