#include "comm/node_groups.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"

namespace tutti {

NodeGroups::NodeGroups(NodeContext& context, std::vector<int32_t> ranks)
    : context_(context), ranks_(std::move(ranks)), counts_(ranks_.size()) {}

void NodeGroups::bind(const Agreed& agreed, bool pinned_scratch) {
  agreed_.op = agreed.op;
  agreed_.dtype = agreed.dtype;
  pinned_scratch_ = pinned_scratch;
}

Buffer NodeGroups::buffer(const Ref& ref) const {
  if (ref.count == 0) return Buffer::missing;
  return ref.space == Space::scratch && pinned_scratch_ ? Buffer::pinned : Buffer::unknown;
}

// Kernels know blocks of one length.
void NodeGroups::even_out(Agreed& agreed) const {
  if (std::any_of(counts_.begin(), counts_.end(), [&](uint64_t n) { return n != counts_[0]; }))
    return;
  agreed.coll = agreed.coll == Coll::allgatherv ? Coll::allgather : Coll::reduce_scatter_block;
  agreed.count = counts_[0];
  agreed.counts = {};
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
  if (context_.device != nullptr) even_out(problem.agreed);
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
  call_.emplace(context_, problem, buffer(step.from), buffer(step.to));
  return &*call_;
}

}  // namespace tutti
