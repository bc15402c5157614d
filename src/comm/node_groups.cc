#include "comm/node_groups.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"

namespace tutti {

NodeGroups::NodeGroups(NodeContext& context, std::vector<int32_t> ranks)
    : context_(context), ranks_(std::move(ranks)), counts_(ranks_.size()) {}

void NodeGroups::bind(const Agreed& agreed) {
  agreed_.op = agreed.op;
  agreed_.dtype = agreed.dtype;
}

// Rooted ones are those of uneven parts in which all but the root have none.
Status NodeGroups::describe(const Step& step, const Group& group, const void* from, void* to,
                            Problem& problem) {
  const auto me = static_cast<size_t>(context_.group->rank());
  const bool gathers = group.coll == Coll::allgather || group.coll == Coll::bcast;
  problem.agreed = agreed_;
  // Partial results of 16-bit elements.
  if (step.to.space == Space::wide || step.from.space == Space::wide)
    problem.agreed.dtype = Dtype::f32;
  problem.agreed.coll = gathers ? Coll::allgatherv : Coll::reduce_scatter;
  problem.local.send = from;
  problem.local.recv = to;
  switch (group.coll) {
    case Coll::allgather:
    case Coll::reduce_scatter:
      if (group.counts.size() != counts_.size()) return Code::internal;
      std::copy(group.counts.begin(), group.counts.end(), counts_.begin());
      break;
    case Coll::bcast:
    case Coll::reduce:
      std::fill(counts_.begin(), counts_.end(), 0);
      counts_[static_cast<size_t>(group.root)] = gathers ? step.to.count : step.from.count;
      break;
    case Coll::allreduce:
      problem.agreed.coll = Coll::allreduce;
      problem.agreed.count = step.from.count;
      return {};
    case Coll::barrier:
      problem.agreed.coll = Coll::barrier;
      return {};
    default:
      return Code::internal;
  }
  problem.agreed.counts = counts_;
  if (!gathers) return {};
  const uint64_t extent = info(problem.agreed.dtype).extent;
  uint64_t before = 0;
  for (size_t i = 0; i < me; ++i) before += counts_[i];
  problem.local.in_place = from == static_cast<std::byte*>(to) + before * extent;
  return {};
}

Result<Operation*> NodeGroups::prepare(uint32_t, const Step& step, const Group& group,
                                       const void* from, void* to) {
  Problem problem;
  Status status = Code::internal;
  if (group.members == ranks_) status = describe(step, group, from, to, problem);
  if (!status.ok()) {
    TUTTI_ERROR("comm", "a group step {} of {} ranks is not one of this node's {}",
                name(group.coll), group.members.size(), ranks_.size());
    return status;
  }
  call_.emplace(context_, problem);
  return &*call_;
}

}  // namespace tutti
