// StartOrder: calls that every rank of a node begins in an order of its own, as the starts of persistent
// calls may come; they run one after the other, in one order on all ranks.
//
// A call has a number, the same on all ranks. Rounds tell the ranks what has been started: in each one
// every rank names up to `told_at_once` numbers that it has not named before. All ranks read the same,
// so all know alike which calls everyone has started by then, and run these in the order in which the
// last rank was found to have named them. Whoever has a call that is not yet everyone's takes part in
// every round, so what all have started comes to its turn with no further call of anybody; whoever has
// none does not, and nothing can be everyone's without him. Rounds and calls go through one gate, in one
// order.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/node_call.hpp"
#include "engine/engine.hpp"

namespace tutti {

class StartOrder final : public Operation {
 public:
  // Nothing else may use the context's group.
  StartOrder(NodeContext& context, Engine& engine);

  // That call is started here; several before one go() are told together. Problem, its arrays and the
  // request live until the call has finished. Any thread.
  void enlist(uint64_t number, const Problem& problem, Request& request);
  void go();
  // Waits until every call has finished.
  void drain() { engine_.drain(lane_); }

  Status start() override { return {}; }
  Poll poll() override;
  void abort(Status why) override;
  Status check_peers() override;
  const char* phase() const override;
  std::string waiting_for() const override;

 private:
  struct Started {
    uint64_t number = 0;
    const Problem* problem = nullptr;
    Request* request = nullptr;
  };
  // By whom a call that is not everyone's has been named.
  struct Named {
    uint64_t number = 0;
    std::bitset<shm::max_members> ranks;
  };
  static constexpr size_t told_at_once = shm::inline_bytes / sizeof(uint64_t);

  bool take_fresh();
  void begin_round();
  void take_round();
  void run_everyones();
  void finish(const Started& started, Status status);
  void fail_all(Status status);

  NodeContext& context_;
  NodeContext rounds_context_;  // without devices: what is told is host memory
  Engine& engine_;
  Lane lane_;
  const int nranks_;

  std::mutex mutex_;  // of what follows
  std::vector<Started> fresh_;
  bool running_ = false;
  // The engine may still be leaving the last one when the next begins.
  std::array<Request, 2> turns_;
  size_t turn_ = 0;

  // Under the engine's lock.
  std::vector<Started> waiting_;
  size_t told_ = 0;  // of waiting_: named in a round
  std::vector<Named> named_;
  std::deque<Started> everyones_;
  std::optional<NodeCall> round_;
  std::optional<NodeCall> call_;
  Started current_;
  std::array<uint64_t, told_at_once> own_numbers_{};
  std::vector<uint64_t> all_numbers_;
  uint32_t looks_ = 0;
};

}  // namespace tutti
