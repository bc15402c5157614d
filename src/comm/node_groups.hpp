// NodeGroups: the group steps of a schedule, run by the collectives of this node's ranks through
// shared memory, or by kernels where their buffers lie on devices. Group steps of one rank form one chain, so one call at a time is enough.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/node_call.hpp"
#include "engine/executor.hpp"

namespace tutti {

class NodeGroups final : public GroupRunner {
 public:
  // `ranks`: of the communicator, as the group's members, in order.
  NodeGroups(NodeContext& context, std::vector<int32_t> ranks);

  // The call whose steps come next: its operation and type, and whether kernels reach its scratch.
  void bind(const Agreed& agreed, bool pinned_scratch);
  Result<Operation*> prepare(uint32_t number, const Step& step, const Group& group,
                             const void* from, void* to) override;

 private:
  Status describe(const Step& step, const Group& group, const void* from, void* to,
                  Problem& problem);
  Buffer buffer(const Ref& ref) const;
  void even_out(Agreed& agreed) const;

  NodeContext& context_;
  const std::vector<int32_t> ranks_;
  Agreed agreed_;
  bool pinned_scratch_ = false;
  std::vector<uint64_t> counts_;
  std::optional<NodeCall> call_;
};

}  // namespace tutti
