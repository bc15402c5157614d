// The wait loop and the lanes, with operations that finish when a test says so.
#include "engine/engine.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/log.hpp"

namespace tutti {
namespace {

class Scripted final : public Operation {
 public:
  Status start() override {
    ++starts;
    return start_status;
  }
  Poll poll() override {
    ++polls;
    if (ended.has_value()) return Poll::failed(*ended);
    if (polls < finish_after) return Poll::busy();
    return result.ok() ? Poll::done() : Poll::failed(result);
  }
  void abort(Status why) override { ended = why; }
  bool needs_base() const override { return base; }
  const char* phase() const override { return "scripted"; }
  std::string waiting_for() const override { return "rank 7 (host h, pid 1)"; }

  int starts = 0;
  int polls = 0;
  int finish_after = 1;
  bool base = false;
  Status start_status;
  Status result;
  std::optional<Status> ended;
};

int base_turns = 0;
std::vector<bool> pending_calls;

EngineHooks hooks() {
  base_turns = 0;
  pending_calls.clear();
  EngineHooks hooks;
  hooks.base_progress = [] { ++base_turns; };
  hooks.pending = [](bool any) { pending_calls.push_back(any); };
  return hooks;
}

TEST(Engine, ShortBlockingCallDrivesNothingElse) {
  Engine engine(hooks());
  Lane lane;
  Scripted operation;
  operation.finish_after = 20;
  CallRecord record;
  EXPECT_TRUE(engine.run(lane, operation, record).ok());
  EXPECT_EQ(operation.starts, 1);
  EXPECT_EQ(base_turns, 0);
  EXPECT_TRUE(pending_calls.empty());
}

TEST(Engine, LongBlockingCallDrivesTheBaseAndPendingCalls) {
  Engine engine(hooks());
  Lane lane;
  Lane other;
  Scripted pending;
  pending.finish_after = 50;
  Request request;
  request.operation = &pending;
  engine.submit(other, request);
  Scripted operation;
  operation.finish_after = 3000;
  CallRecord record;
  EXPECT_TRUE(engine.run(lane, operation, record).ok());
  EXPECT_GT(base_turns, 1000);
  EXPECT_TRUE(request.done.load());
  EXPECT_EQ(pending_calls, (std::vector<bool>{true, false}));
}

TEST(Engine, CallsOfALaneRunInOrderAndOneAtATime) {
  Engine engine(hooks());
  Lane lane;
  Scripted first;
  first.finish_after = 10;
  Scripted second;
  Request requests[2];
  requests[0].operation = &first;
  requests[1].operation = &second;
  engine.submit(lane, requests[0]);
  engine.submit(lane, requests[1]);
  EXPECT_EQ(first.starts, 1);
  EXPECT_EQ(second.starts, 0);
  Scripted third;
  CallRecord record;
  EXPECT_TRUE(engine.run(lane, third, record).ok());
  EXPECT_TRUE(requests[0].done.load());
  EXPECT_TRUE(requests[1].done.load());
  EXPECT_TRUE(lane.empty());
}

TEST(Engine, FailureOfOneCallIsItsOwn) {
  Engine engine(hooks());
  Lane lane;
  Scripted bad;
  bad.result = Code::device_fault;
  Scripted refused;
  refused.start_status = Code::no_memory;
  Scripted good;
  Request requests[3];
  requests[0].operation = &bad;
  requests[1].operation = &refused;
  requests[2].operation = &good;
  for (auto& request : requests) engine.submit(lane, request);
  EXPECT_EQ(engine.wait(requests[2]), Status());
  EXPECT_EQ(requests[0].status, Status(Code::device_fault));
  EXPECT_EQ(requests[1].status, Status(Code::no_memory));
}

TEST(Engine, AHelperThreadLeavesCallsThatNeedTheBaseAlone) {
  Engine engine(hooks());
  Lane lane;
  Scripted operation;
  operation.finish_after = 2;
  operation.base = true;
  Request request;
  request.operation = &operation;
  engine.submit(lane, request);
  for (int i = 0; i < 10; ++i) engine.progress(false);
  EXPECT_FALSE(request.done.load());
  engine.progress(true);
  EXPECT_TRUE(request.done.load());
}

TEST(Engine, TheBaseMayComeBackFromWithin) {
  static Engine* inner = nullptr;
  EngineHooks looping = hooks();
  looping.base_progress = [] { inner->progress(); };
  Engine engine(looping);
  inner = &engine;
  Lane lane;
  Scripted operation;
  operation.finish_after = 500;
  Request request;
  request.operation = &operation;
  request.finished = [](Request* done, Status) {
    inner->progress();  // as the self send of a request does
    done->done.store(true);
  };
  engine.submit(lane, request);
  EXPECT_TRUE(engine.wait(request).ok());
}

TEST(Engine, TheWatchdogNamesWhoIsMissingOnceAndEndsTheCall) {
  const log::Level before = log::threshold.exchange(log::Level::off);
  EngineHooks watched = hooks();
  watched.warn_after_ns = 1000 * 1000;
  watched.fail_after_ns = 20 * 1000 * 1000;
  Engine engine(watched);
  Lane lane;
  Scripted operation;
  operation.finish_after = 1 << 30;
  CallRecord record;
  EXPECT_EQ(engine.run(lane, operation, record), Status(Code::timeout));
  EXPECT_TRUE(record.warned);
  EXPECT_EQ(operation.ended, Status(Code::timeout));
  // The same for a pending call, which only progress() drives.
  Scripted other;
  other.finish_after = 1 << 30;
  Request request;
  request.operation = &other;
  engine.submit(lane, request);
  EXPECT_EQ(engine.wait(request), Status(Code::timeout));
  log::threshold.store(before);
}

TEST(Engine, ThreadsDriveEachOthersCalls) {
  EngineHooks shared = hooks();
  shared.single_threaded = false;
  shared.pending = nullptr;
  shared.base_progress = nullptr;
  Engine engine(shared);
  constexpr int nthreads = 4;
  std::atomic<int> finished{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < nthreads; ++t)
    threads.emplace_back([&] {
      Lane lane;
      for (int i = 0; i < 200; ++i) {
        Scripted operation;
        operation.finish_after = i % 7 + 1;
        Request request;
        request.operation = &operation;
        request.token = &finished;
        engine.submit(lane, request);
        EXPECT_TRUE(engine.wait(request).ok());
        finished.fetch_add(1);
      }
      engine.drain(lane);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(finished.load(), nthreads * 200);
  EXPECT_FALSE(engine.any_pending());
}

}  // namespace
}  // namespace tutti
