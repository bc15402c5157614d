#include "gpu/linger.hpp"

#include <gtest/gtest.h>

#include <random>
#include <thread>

namespace tutti::gpu {
namespace {

constexpr uint64_t window_ns = 50'000;

// What the other side does, by hand or by a thread: the words as gpu/kernel/linger.hpp uses them.
struct FakeKernel {
  LingerLine line{};
  bool shows(uint32_t ring, LingerCommand& command) const {
    for (uint32_t i = 0; i < command_words; ++i) {
      const uint64_t word = __atomic_load_n(&line.bell[i], __ATOMIC_ACQUIRE);
      if (word >> 32 != ring) return false;
      command.word[i] = static_cast<uint32_t>(word);
    }
    return true;
  }
  void leave(uint32_t ring) { __atomic_store_n(&line.left, ring, __ATOMIC_RELEASE); }
};

LingerCommand numbered(uint32_t number, uint32_t ctas = 1) {
  LingerCommand command = make_command(KernelArgs{}, LingerShape::allreduce, 0, ctas);
  command.word[6] = number;
  return command;
}

struct Pair {
  FakeKernel kernel;
  Linger host;
  uint64_t now_ns = 1;
  int group = 0;
  Pair() { host.open(&kernel.line, nullptr); }
  Linger::Way call(uint64_t gap_ns = 5'000, uint32_t nranks = 2, const void* who = nullptr,
                   uint32_t ctas = 1) {
    now_ns += gap_ns;
    return host.begin(who ? who : &group, numbered(7, ctas), nranks, window_ns, now_ns);
  }
  // Calls until a kernel is to be launched; its arguments.
  LingerArgs launch() {
    while (call() != Linger::Way::launch) {
    }
    return host.launch_args();
  }
};

TEST(Linger, StaysOnlyAfterCallsCloseToEachOther) {
  Pair pair;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(pair.call(window_ns), Linger::Way::alone);
  EXPECT_EQ(pair.call(), Linger::Way::alone);
  EXPECT_EQ(pair.call(), Linger::Way::launch);
}

TEST(Linger, RingsTheRunningKernelWithTheWholeCommand) {
  Pair pair;
  const LingerArgs args = pair.launch();
  EXPECT_EQ(args.first.word[6], 7u);
  pair.host.end();
  ASSERT_EQ(pair.call(), Linger::Way::rung);
  LingerCommand seen{};
  ASSERT_TRUE(pair.kernel.shows(next_ring(args.ring), seen));
  EXPECT_EQ(seen.word[6], 7u);
  EXPECT_FALSE(pair.host.missed());
}

TEST(Linger, ACallThatFindsAnOwnerGoesAlone) {
  Pair pair;
  const LingerArgs args = pair.launch();
  int other = 0;
  EXPECT_EQ(pair.call(1, 2, &other), Linger::Way::alone);
  pair.host.end();
  EXPECT_EQ(pair.call(1, 2, &other), Linger::Way::rung);
  LingerCommand seen{};
  EXPECT_TRUE(pair.kernel.shows(next_ring(args.ring), seen));
}

TEST(Linger, LaunchesAnewWhatALeavingKernelDidNotTake) {
  Pair pair;
  const LingerArgs first = pair.launch();
  pair.host.end();
  ASSERT_EQ(pair.call(), Linger::Way::rung);
  EXPECT_FALSE(pair.host.missed());
  pair.kernel.leave(next_ring(first.ring));
  ASSERT_TRUE(pair.host.missed());
  const LingerArgs again = pair.host.launch_args();
  EXPECT_EQ(again.ring, next_ring(first.ring));
  EXPECT_EQ(again.first.word[6], 7u);
  EXPECT_FALSE(pair.host.missed());
}

TEST(Linger, DoesNotRingAKernelThatHasLeft) {
  Pair pair;
  const LingerArgs args = pair.launch();
  pair.host.end();
  pair.kernel.leave(next_ring(args.ring));
  EXPECT_NE(pair.call(), Linger::Way::rung);
}

TEST(Linger, AKernelServesTheGroupsThatItWasLaunchedWith) {
  Pair pair;
  const auto slot = pair.host.add(LingerSlot{});
  ASSERT_TRUE(slot);
  const LingerArgs args = pair.launch();
  pair.host.end();
  EXPECT_EQ(pair.call(5'000, 3), Linger::Way::alone) << "it has code for two ranks";
  EXPECT_EQ(pair.call(), Linger::Way::rung);
  pair.host.end();
  ASSERT_TRUE(pair.host.add(LingerSlot{}));
  EXPECT_EQ(pair.call(), Linger::Way::alone) << "a group came";
  pair.host.remove(*slot);
  // Told to leave, whether it heard that in time or not.
  LingerCommand seen{};
  const uint32_t leave = next_ring(next_ring(args.ring));
  ASSERT_TRUE(pair.kernel.shows(leave, seen));
  EXPECT_EQ(shape_of(seen), LingerShape::leave);
  EXPECT_EQ(pair.call(), Linger::Way::alone);
  pair.kernel.leave(pair.now_ns % 2 ? leave : next_ring(leave));
  EXPECT_EQ(pair.launch().ring, next_ring(leave));
}

// Calls of all sizes find a kernel of enough CTAs, and it shrinks when only small ones are left.
TEST(Linger, HasTheCtasThatTheLastCallsWanted) {
  Pair pair;
  LingerArgs args = pair.launch();
  pair.host.end();
  EXPECT_EQ(pair.host.launched_ctas(), 1u);
  EXPECT_EQ(pair.call(5'000, 2, nullptr, 5), Linger::Way::alone);
  LingerCommand seen{};
  const uint32_t leave = next_ring(args.ring);
  ASSERT_TRUE(pair.kernel.shows(leave, seen)) << "small calls would keep it";
  EXPECT_EQ(shape_of(seen), LingerShape::leave);
  EXPECT_EQ(pair.call(), Linger::Way::alone) << "it was told to leave";
  pair.kernel.leave(next_ring(leave));
  ASSERT_EQ(pair.call(), Linger::Way::launch) << "a small call";
  args = pair.host.launch_args();
  pair.host.end();
  EXPECT_EQ(pair.host.launched_ctas(), 5u);
  EXPECT_EQ(pair.call(5'000, 2, nullptr, 5), Linger::Way::rung);
  pair.host.end();
  EXPECT_EQ(pair.call(5'000, 2, nullptr, 3), Linger::Way::rung);
  pair.host.end();
  pair.kernel.leave(next_ring(next_ring(next_ring(args.ring))));
  args = pair.launch();
  pair.host.end();
  EXPECT_EQ(pair.host.launched_ctas(), 5u);
  for (const uint32_t ctas : {2u, 1u, 1u}) {
    pair.kernel.leave(next_ring(args.ring));
    args = pair.launch();
    pair.host.end();
    EXPECT_EQ(pair.host.launched_ctas(), ctas);
  }
}

TEST(Linger, SlotsRunOutAndComeBack) {
  Pair pair;
  for (uint32_t i = 0; i < linger_slots; ++i) EXPECT_EQ(pair.host.add(LingerSlot{}), i);
  EXPECT_FALSE(pair.host.add(LingerSlot{}));
  pair.host.remove(3);
  EXPECT_EQ(pair.host.add(LingerSlot{}), 3u);
}

TEST(Linger, NeverWhereItIsForbidden) {
  Pair pair;
  pair.host.forbid();
  EXPECT_FALSE(pair.host.add(LingerSlot{}));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(pair.call(), Linger::Way::alone);
}

TEST(Linger, StaysThatDoNotPayBecomeRare) {
  Pair pair;
  // A program that synchronises its device after each call: the kernel has always left before the next.
  int launches = 0;
  for (int i = 0; i < 200'000; ++i) {
    if (pair.call() != Linger::Way::launch) continue;
    ++launches;
    const LingerArgs args = pair.host.launch_args();
    pair.host.end();
    pair.kernel.leave(next_ring(args.ring));
    pair.now_ns += 2 * window_ns;
  }
  EXPECT_LT(launches, 60);
  EXPECT_GT(launches, 10) << "it never tries again";
}

TEST(Linger, FieldsOfACommandComeBack) {
  std::random_device device;
  const auto seed = device();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1000; ++i) {
    KernelArgs args{};
    args.send = reinterpret_cast<const char*>(random());
    args.recv = reinterpret_cast<char*>(random());
    args.bytes = random() % (4 << 20);
    args.code = static_cast<uint32_t>(random() % 32);
    args.epoch = static_cast<uint32_t>(random());
    args.sequence = static_cast<uint32_t>(random());
    const auto shape = static_cast<LingerShape>(random() % 6);
    const auto slot = static_cast<uint32_t>(random() % linger_slots);
    const auto ctas = static_cast<uint32_t>(random() % 256);
    const LingerCommand command = make_command(args, shape, slot, ctas);
    EXPECT_EQ(ctas_of(command), ctas);
    EXPECT_EQ(shape_of(command), shape);
    EXPECT_EQ(slot_of(command), slot);
    EXPECT_EQ(bytes_of(command), args.bytes);
    KernelArgs back{};
    apply_command(command, back);
    EXPECT_EQ(back.send, args.send);
    EXPECT_EQ(back.recv, args.recv);
    EXPECT_EQ(back.bytes, args.bytes);
    EXPECT_EQ(back.code, args.code);
    EXPECT_EQ(back.epoch, args.epoch);
    EXPECT_EQ(back.sequence, args.sequence);
  }
}

// A kernel that leaves at random moments against a host that rings at random moments: each command is
// performed once, in order.
TEST(Linger, NoRingIsLostOrPerformedTwice) {
  std::random_device device;
  const auto seed = device();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  FakeKernel kernel;
  Linger host;
  host.open(&kernel.line, nullptr);
  std::atomic<uint32_t> done{0};
  std::atomic<uint32_t> performed{0};
  const auto run = [&](LingerArgs args, uint32_t turns, unsigned pause) {
    uint32_t ring = args.ring;
    LingerCommand command = args.first;
    while (true) {
      performed.fetch_add(1);
      done.store(command.word[6], std::memory_order_release);
      ring = next_ring(ring);
      bool rung = false;
      for (uint32_t turn = 0; turn < turns && !rung; ++turn) rung = kernel.shows(ring, command);
      if (rung) continue;
      for (unsigned i = 0; i < pause; ++i) std::this_thread::yield();
      return kernel.leave(ring);
    }
  };
  std::thread stream;
  const auto launch = [&] {
    if (stream.joinable()) stream.join();  // as a stream does
    const uint32_t turns = random() % 4 ? random() % 50 : random() % 3000;
    stream = std::thread(run, host.launch_args(), turns, random() % 3);
  };
  constexpr uint32_t calls = 20'000;
  uint32_t alone = 0;
  uint64_t now = 1;
  int group = 0;
  for (uint32_t call = 1; call <= calls; ++call) {
    for (uint32_t i = random() % 4 ? 0 : random() % 2000; i > 0; --i) __asm__ volatile("");
    // The clock stands still for the policy: a window of any length.
    const Linger::Way way = host.begin(&group, numbered(call), 2, ~uint64_t{0}, ++now);
    if (way == Linger::Way::alone) {
      ++alone;
      continue;
    }
    if (way == Linger::Way::launch) launch();
    while (done.load(std::memory_order_acquire) != call)
      if (host.missed())
        launch();
      else
        std::this_thread::yield();
    host.end();
  }
  if (stream.joinable()) stream.join();
  EXPECT_EQ(performed.load() + alone, calls);
  EXPECT_GT(host.counts().rung.load(), 0u);
  EXPECT_GT(host.counts().missed.load(), 0u);
}

}  // namespace
}  // namespace tutti::gpu
