#include "pml/loopback.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "../engine/guarded.hpp"
#include "../engine/ranks.hpp"

namespace tutti {
namespace {

// Looks until the transfer has finished; progresses both ends, which live in this thread.
Status wait(Loopback& loopback, int rank, Transport::Handle handle) {
  for (;;) {
    for (int r = 0; r < loopback.transport(rank).nranks(); ++r) loopback.transport(r).progress();
    Poll poll = loopback.transport(rank).test(handle);
    if (poll.finished()) return poll.status();
  }
}

bool stays_busy(Loopback& loopback, int rank, Transport::Handle handle) {
  for (int look = 0; look < 1000; ++look) {
    for (int r = 0; r < loopback.transport(rank).nranks(); ++r) loopback.transport(r).progress();
    if (loopback.transport(rank).test(handle).finished()) return false;
  }
  return true;
}

TEST(Loopback, MatchesBySenderAndTagInTheOrderPosted) {
  for (uint64_t round = 0; round < 200; ++round) {
    Loopback loopback(3, {.seed = test_seed() + round, .eager_bytes = 4, .eager_total_bytes = 8});
    // Two tags from two senders, three messages each; receives posted in another order.
    std::vector<std::array<int, 3>> sent;
    for (int message = 0; message < 3; ++message)
      for (int sender = 1; sender < 3; ++sender)
        for (int tag = 5; tag < 7; ++tag) sent.push_back({sender, tag, message});
    std::vector<uint64_t> out(sent.size()), in(sent.size());
    std::vector<std::pair<int, Transport::Handle>> all;
    for (size_t i = 0; i < sent.size(); ++i) {
      out[i] = 0x100u * static_cast<uint64_t>(sent[i][0]) +
               0x10u * static_cast<uint64_t>(sent[i][1]) + static_cast<uint64_t>(sent[i][2]);
      // Odd messages are short and may be buffered, even ones are not.
      all.emplace_back(sent[i][0], *loopback.transport(sent[i][0])
                                        .send(0, static_cast<uint64_t>(sent[i][1]), &out[i],
                                              sent[i][2] % 2 == 1 ? 4 : 8));
    }
    std::vector<size_t> order(sent.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::sort(order, {}, [&](size_t i) {
      return std::array{sent[i][2], -sent[i][1], -sent[i][0]};
    });
    for (size_t i : order)
      all.emplace_back(
          0, *loopback.transport(0).recv(sent[i][0], static_cast<uint64_t>(sent[i][1]), &in[i], 8));
    for (auto [rank, handle] : all) ASSERT_TRUE(wait(loopback, rank, handle).ok());
    for (size_t i = 0; i < sent.size(); ++i)
      ASSERT_EQ(static_cast<uint32_t>(in[i]), static_cast<uint32_t>(out[i])) << "round " << round;
    EXPECT_EQ(loopback.unmatched(), 0u);
  }
}

TEST(Loopback, LongMessagesWaitForTheirReceive) {
  Loopback loopback(2, {.seed = test_seed(), .eager_bytes = 16, .eager_total_bytes = 32});
  std::vector<char> out(17, 'x'), in(17);
  Transport::Handle send = *loopback.transport(0).send(1, 1, out.data(), out.size());
  EXPECT_TRUE(stays_busy(loopback, 0, send));
  Transport::Handle recv = *loopback.transport(1).recv(0, 1, in.data(), in.size());
  EXPECT_TRUE(wait(loopback, 0, send).ok());
  EXPECT_TRUE(wait(loopback, 1, recv).ok());
  EXPECT_EQ(in, out);
}

TEST(Loopback, BufferedBytesAreBoundedForEachPair) {
  Loopback loopback(3, {.seed = test_seed(), .eager_bytes = 16, .eager_total_bytes = 32});
  std::vector<char> data(16, 'x'), in(16);
  Transport& sender = loopback.transport(0);
  EXPECT_TRUE(wait(loopback, 0, *sender.send(1, 1, data.data(), 16)).ok());
  EXPECT_TRUE(wait(loopback, 0, *sender.send(1, 2, data.data(), 16)).ok());
  Transport::Handle third = *sender.send(1, 3, data.data(), 16);
  EXPECT_TRUE(stays_busy(loopback, 0, third));
  // Another receiver's buffer is another.
  EXPECT_TRUE(wait(loopback, 0, *sender.send(2, 3, data.data(), 16)).ok());
  // Room comes back when a buffered message is received.
  EXPECT_TRUE(wait(loopback, 1, *loopback.transport(1).recv(0, 1, in.data(), 16)).ok());
  EXPECT_TRUE(wait(loopback, 0, *sender.send(1, 4, data.data(), 16)).ok());
  EXPECT_TRUE(stays_busy(loopback, 0, third));
  EXPECT_TRUE(wait(loopback, 1, *loopback.transport(1).recv(0, 3, in.data(), 16)).ok());
  EXPECT_TRUE(wait(loopback, 0, third).ok());
}

TEST(Loopback, LongerThanTheReceiveIsTruncated) {
  Loopback loopback(2, {.seed = test_seed()});
  uint64_t out = 1;
  Guarded in(4);
  Transport::Handle send = *loopback.transport(0).send(1, 1, &out, 8);
  EXPECT_EQ(wait(loopback, 1, *loopback.transport(1).recv(0, 1, in.data(), 4)), Code::truncated);
  EXPECT_TRUE(wait(loopback, 0, send).ok());
  EXPECT_TRUE(in.intact());

  loopback.plant_truncation(0, 1, 2);
  for (uint64_t nth = 1; nth < 4; ++nth) {
    Transport::Handle again = *loopback.transport(0).send(1, 1, &out, 4);
    Status status = wait(loopback, 1, *loopback.transport(1).recv(0, 1, in.data(), 4));
    EXPECT_EQ(status.code(), nth == 2 ? Code::truncated : Code::ok);
    EXPECT_TRUE(wait(loopback, 0, again).ok());
  }
}

TEST(Loopback, AnErrorTakesThePlaceOfAMessage) {
  Loopback loopback(2, {.seed = test_seed()});
  uint64_t in = 0;
  loopback.transport(0).send_error(1, 9, Code::no_memory);
  EXPECT_EQ(wait(loopback, 1, *loopback.transport(1).recv(0, 9, &in, 8)), Code::no_memory);
  EXPECT_EQ(loopback.unmatched(), 0u);
}

TEST(Loopback, ADeathEndsEveryTransferWithTheDead) {
  Loopback loopback(3, {.seed = test_seed(), .eager_bytes = 0});
  loopback.plant_death(1, 1);
  uint64_t data = 1, in = 0;
  Transport::Handle to_dead = *loopback.transport(0).send(1, 1, &data, 8);
  Transport::Handle from_dead = *loopback.transport(2).recv(1, 1, &in, 8);
  EXPECT_TRUE(loopback.transport(1).send(0, 7, &data, 8).ok());
  EXPECT_EQ(loopback.transport(1).send(2, 1, &data, 8).status(), Code::peer_lost);
  EXPECT_EQ(wait(loopback, 0, to_dead), Code::peer_lost);
  EXPECT_EQ(wait(loopback, 2, from_dead), Code::peer_lost);
  EXPECT_EQ(loopback.transport(2).send(1, 1, &data, 8).status(), Code::peer_lost);
  loopback.transport(2).send_error(1, 1, Code::internal);  // dropped
  Transport::Handle alive = *loopback.transport(0).send(2, 1, &data, 8);
  EXPECT_TRUE(wait(loopback, 2, *loopback.transport(2).recv(0, 1, &in, 8)).ok());
  EXPECT_TRUE(wait(loopback, 0, alive).ok());
}

TEST(Loopback, WithdrawnTransfersTouchNothing) {
  Loopback loopback(2, {.seed = test_seed(), .eager_bytes = 0});
  uint64_t out = 1, in = 0;
  Transport::Handle recv = *loopback.transport(1).recv(0, 1, &in, 8);
  EXPECT_TRUE(loopback.transport(1).cancel(recv));
  in = 77;
  Transport::Handle send = *loopback.transport(0).send(1, 1, &out, 8);
  EXPECT_TRUE(stays_busy(loopback, 0, send));
  EXPECT_TRUE(loopback.transport(0).cancel(send));
  EXPECT_EQ(loopback.unmatched(), 0u);
  EXPECT_EQ(in, 77u);
}

TEST(LoopbackDeathTest, AHandleServesOnce) {
  Loopback loopback(2, {.seed = 1, .max_delay = 0});
  uint64_t data = 1;
  Transport::Handle send = *loopback.transport(0).send(1, 1, &data, 8);
  ASSERT_TRUE(wait(loopback, 0, send).ok());
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH((void)loopback.transport(0).test(send), "names no transfer");
  EXPECT_DEATH((void)loopback.transport(0).send(1, uint64_t{1} << Transport::tag_bits, &data, 8),
               "tag is too large");
}

// Ring traffic of several threads at once: every rank to every other, sizes on both sides of eager.
TEST(Loopback, ThreadsExchangeEverything) {
  constexpr int nranks = 5, messages = 40;
  Loopback loopback(nranks, {.seed = test_seed()});
  run_ranks(nranks, [&](int rank) {
    Transport& transport = loopback.transport(rank);
    std::vector<std::vector<char>> in, out;
    std::vector<Transport::Handle> handles;
    auto bytes_of = [](int from, int to, int message) {
      return static_cast<size_t>((from * 31 + to * 17 + message * 97) % 600);
    };
    for (int message = 0; message < messages; ++message) {
      for (int peer = 0; peer < nranks; ++peer) {
        if (peer == rank) continue;
        in.emplace_back(bytes_of(peer, rank, message));
        handles.push_back(*transport.recv(peer, 3, in.back().data(), in.back().size()));
        out.emplace_back(bytes_of(rank, peer, message), static_cast<char>(rank * 50 + message));
        handles.push_back(*transport.send(peer, 3, out.back().data(), out.back().size()));
      }
    }
    while (!handles.empty()) {
      transport.progress();
      std::erase_if(handles, [&](Transport::Handle handle) {
        Poll poll = transport.test(handle);
        EXPECT_TRUE(!poll.finished() || poll.status().ok());
        return poll.finished();
      });
      std::this_thread::yield();
    }
    size_t at = 0;
    for (int message = 0; message < messages; ++message)
      for (int peer = 0; peer < nranks; ++peer) {
        if (peer == rank) continue;
        EXPECT_TRUE(std::ranges::all_of(
            in[at++], [&](char c) { return c == static_cast<char>(peer * 50 + message); }));
      }
  });
  EXPECT_EQ(loopback.unmatched(), 0u);
}

}  // namespace
}  // namespace tutti
