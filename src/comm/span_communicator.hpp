// A communicator whose ranks lie on several nodes: class X, and H over several nodes.
#pragma once

#include <string>

#include "comm/lane_communicator.hpp"
#include "comm/node_communicator.hpp"
#include "comm/span_call.hpp"

namespace tutti {

class SpanCommunicator final : public LaneCommunicator<SpanCall> {
 public:
  SpanCommunicator(const BaseComm& base, Engine& engine, const Config& config)
      : LaneCommunicator(base, engine, config) {}

  void close() override;

 private:
  bool wants_here(Coll coll) const override { return context_.tuning.may_want(coll); }
  std::string take_setup(Setup& setup) override;
  bool takes(const Agreed& agreed) const override;
  SpanContext& context() override { return context_; }
  uint64_t next_sequence() const override { return context_.sequence + 1; }

  NodeParts node_;
  SpanContext context_;
};

}  // namespace tutti
