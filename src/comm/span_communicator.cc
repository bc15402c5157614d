#include "comm/span_communicator.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "sched/contract.hpp"
#include "shm/reduce.hpp"

namespace tutti {

namespace {

// Whether schedules can reduce that. Elements with padding are left to the base, because messages
// would carry the padding along.
bool schedules_reduce(const Agreed& agreed) {
  const DtypeInfo& type = info(agreed.dtype);
  return shm::reducible(agreed.op, agreed.dtype) && type.bytes == type.extent;
}

// Measured where the model is wrong: four nodes of one and two ranks, TCP at 1 Gbit/s, 2026-11-30.
constexpr const char* tcp_table = R"(
allreduce recursive_doubling @ ..64k nodes=2..8 ppn=1
allreduce ring @ 4m.. nodes=3..8 ppn=1
allreduce hierarchical,inner=groups,top=recursive_doubling @ ..16k nodes=2..8 ppn=2..
allreduce hierarchical,inner=groups,top=ring @ 4m.. nodes=3..8 ppn=2..
allreduce hierarchical,inner=groups,top=rabenseifner @ nodes=2..8 ppn=2..
)";

Topology topology_of(const std::vector<int32_t>& nodes) {
  Topology topology;
  topology.nranks = static_cast<int>(nodes.size());
  topology.nodes.resize(static_cast<size_t>(*std::max_element(nodes.begin(), nodes.end())) + 1);
  for (int32_t node : nodes) topology.ranks.push_back({node, -1});
  return topology;
}

}  // namespace

std::string SpanCommunicator::take_setup(Setup& setup) {
  node_.take(setup, process_, config_);
  SpanContext& c = context_;
  c.rank = base_.rank;
  c.name = base_.name;
  c.topology = topology_of(base_.nodes);
  c.transport = setup.take_transport();
  c.fabric = &process_.fabric();
  c.device_possible = any_device_possible_;
  for (int r = 0; r < base_.nranks; ++r) c.rank_texts.push_back(setup.rank_text(r));
  if (node_.group != nullptr) {
    c.node = &node_.context;
    c.groups = std::make_unique<NodeGroups>(node_.context, setup.here());
  }
  c.plans = std::make_unique<SpanPlans>(
      SpanPlans::Ends{c.transport.get(), c.groups.get(), &c.topology, c.rank, &c.rank_texts});
  if (auto rules = parse_rules(Coll::allreduce, config_.allreduce); rules.ok())
    c.rules = std::move(*rules);
  c.model = *find_cost_model(setup.all_rdma() ? "ib" : "tcp");
  // The user's rows go before those that come with tutti.
  c.table = process_.tuning_file().rows;
  if (!setup.all_rdma())
    if (auto rows = parse_table(tcp_table); rows.ok())
      c.table.insert(c.table.end(), rows->begin(), rows->end());
  c.tuning.table = c.table;
  c.tuning.rules = c.rules;
  c.tuning.model = &c.model;
  c.tuning.groups = true;
  return text("{} nodes{}: network and shared memory", c.topology.nodes.size(),
              any_device_possible_ ? ", devices possible" : ", host memory");
}

// Those whose sizes are agreed: then select() can weigh them.
bool SpanCommunicator::may_want(Coll coll) {
  return coll != Coll::gatherv && coll != Coll::scatterv && coll != Coll::alltoallv &&
         coll != Coll::alltoallw;
}

bool SpanCommunicator::takes(const Agreed& agreed) const {
  if (!wants_here(agreed.coll)) return false;
  if (reduces(agreed.coll) && !schedules_reduce(agreed)) return false;
  return context_.choice(over_nodes(agreed)).algorithm != nullptr;
}

void SpanCommunicator::close() {
  drain();
  context_.plans.reset();
  context_.groups.reset();
  context_.node = nullptr;
  context_.transport.reset();
  release_setup();
  node_.close();
}

}  // namespace tutti
