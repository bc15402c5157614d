#include "comm/span_communicator.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "sched/contract.hpp"
#include "shm/reduce.hpp"
#include "tune/shipped.hpp"

namespace tutti {

namespace {

// Whether schedules can reduce that. Elements with padding are left to the base, because messages
// would carry the padding along.
bool schedules_reduce(const Agreed& agreed) {
  const DtypeInfo& type = info(agreed.dtype);
  return shm::reducible(agreed.op, agreed.dtype) && type.bytes == type.extent;
}

Topology topology_of(const std::vector<int32_t>& nodes) {
  Topology topology;
  topology.nranks = static_cast<int>(nodes.size());
  topology.nodes.resize(static_cast<size_t>(*std::max_element(nodes.begin(), nodes.end())) + 1);
  for (int32_t node : nodes) topology.ranks.push_back({node, -1});
  return topology;
}

// Then select() can weigh a call.
bool sizes_agreed(Coll coll) {
  return coll != Coll::gatherv && coll != Coll::scatterv && coll != Coll::alltoallv &&
         coll != Coll::alltoallw;
}

}  // namespace

std::string SpanCommunicator::take_setup(Setup& setup) {
  node_.take(setup, process_, config_, base_.name);
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
  c.tuning.open(config_, setup.all_rdma());
  return text("{} nodes{}: network and shared memory", c.topology.nodes.size(),
              any_device_possible_ ? ", devices possible" : ", host memory");
}

void SpanTuning::open(const Config& config, bool rdma) {
  if (auto parsed = parse_rules(Coll::allreduce, config.allreduce); parsed.ok())
    rules = std::move(*parsed);
  model = *find_cost_model(rdma ? "ib" : "tcp");
  // The user's rows go before those that come with tutti.
  table = Process::get(config).tuning_file().rows;
  const std::span<const TuneRule> shipped = shipped_rows(rdma);
  table.insert(table.end(), shipped.begin(), shipped.end());
  view.table = table;
  view.rules = rules;
  view.model = &model;
  view.groups = true;
  view.measured_only = config.net_module == "auto";
  for (uint32_t i = 0; i < coll_count; ++i)
    if (const auto coll = static_cast<Coll>(i); sizes_agreed(coll) && may_choose(coll, view))
      calls |= 1u << i;
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
  node_.device.reset();
  context_.transport.reset();
  release_setup();
  node_.close();
}

}  // namespace tutti
