#include "shm/node_allreduce.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "node_fixture.hpp"

namespace tutti::shm {
namespace {

constexpr size_t canary_bytes = 64;
constexpr unsigned char canary = 0xa5;

struct Case {
  uint64_t count = 0;
  bool in_place = false;
  size_t misaligned = 0;
  bool indirect = false;
  bool ahead = false;
  int64_t seed = 0;
};

int64_t value(const Case& test, int rank, uint64_t i) {
  uint64_t x = static_cast<uint64_t>(test.seed) * 7919 + static_cast<uint64_t>(rank) * 104729 + i;
  x = (x ^ x >> 31) * 0x9e3779b97f4a7c15;
  return static_cast<int64_t>(x >> 20);
}

void run_case(NodeGroup& group, NodeAllreduce& rounds, const Case& test) {
  const size_t bytes = test.count * sizeof(int64_t);
  std::vector<unsigned char> send(bytes + 2 * canary_bytes + 8, canary);
  std::vector<unsigned char> recv(bytes + 2 * canary_bytes + 8, canary);
  unsigned char* in = send.data() + canary_bytes + test.misaligned;
  unsigned char* out = recv.data() + canary_bytes + test.misaligned;
  unsigned char* source = test.in_place ? out : in;
  for (uint64_t i = 0; i < test.count; ++i) {
    const int64_t x = value(test, group.rank(), i);
    std::memcpy(source + i * sizeof x, &x, sizeof x);
  }
  Agreed agreed;
  agreed.op = Op::sum;
  agreed.dtype = Dtype::i64;
  agreed.count = test.count;
  const Local local = local_of(source, out, test.in_place);
  Access access;
  access.direct = !test.indirect;
  access.copy = plain_copy;
  rounds.prepare(agreed, local, access);
  Announcement announcement;
  announcement.signature = test.count;
  if (test.ahead) announcement.laid_out = rounds.lay_out_first();
  group.announce(announcement);
  ASSERT_TRUE(until_finished([&] { return group.gate(); }).ok());
  const bool laid_out = group.summary().all_laid_out;
  ASSERT_TRUE(until_finished([&] { return rounds.poll(laid_out); }).ok());
  for (uint64_t i = 0; i < test.count; ++i) {
    int64_t want = 0;
    for (int r = 0; r < group.nranks(); ++r) want += value(test, r, i);
    int64_t got = 0;
    std::memcpy(&got, out + i * sizeof got, sizeof got);
    ASSERT_EQ(got, want) << "element " << i << " of " << test.count << " seed " << test.seed;
  }
  for (size_t i = 0; i < canary_bytes; ++i) {
    ASSERT_EQ(recv[i], canary);
    ASSERT_EQ(out[bytes + i], canary);
  }
}

void sweep(int nranks, size_t lane_bytes, size_t oneshot_bytes, int cases) {
  Node node(nranks, lane_bytes);
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  on_all_ranks(nranks, [&](int rank) {
    NodeGroup& group = node.group(rank);
    NodeAllreduce rounds(group, oneshot_bytes);
    std::mt19937 draw(seed);  // the same calls on all ranks
    std::mt19937 own(seed + static_cast<unsigned>(rank) + 1);
    for (int i = 0; i < cases; ++i) {
      Case test;
      test.seed = i;
      switch (draw() % 4) {
        case 0:
          test.count = draw() % 9;
          break;
        case 1:
          test.count = draw() % 1100;
          break;
        case 2:
          test.count = draw() % 20000;
          break;
        default:
          test.count = draw() % 300000;
      }
      test.in_place = draw() % 2 == 0;
      // Local facts, different on every rank.
      test.misaligned = own() % 8;
      test.indirect = own() % 3 == 0;
      test.ahead = !test.indirect && own() % 2 == 0;
      run_case(group, rounds, test);
      if (testing::Test::HasFatalFailure()) std::abort();  // peers would wait for ever
    }
  });
}

TEST(NodeAllreduce, AgreesWithASumForAnyRanksCountsAndLocalFacts) {
  for (int nranks : {2, 3, 5, 8}) sweep(nranks, 1 << 20, NodeAllreduce::oneshot_limit(nranks), 60);
}

TEST(NodeAllreduce, WorksWithoutLargeLanes) {
  for (int nranks : {2, 3}) sweep(nranks, 0, NodeAllreduce::oneshot_limit(nranks), 20);
}

TEST(NodeAllreduce, WorksWithTheSmallestLanesAndNoOneshot) {
  sweep(4, 24576, 0, 20);
}

TEST(NodeAllreduce, HasTheSameBitsOnAllPathsAndRanks) {
  // Same data, one-shot and two-shot: bf16 sums whose order and rounding would show.
  constexpr int nranks = 5;
  constexpr uint64_t count = 777;
  std::vector<std::vector<uint16_t>> results(2 * nranks);
  for (int pass = 0; pass < 2; ++pass) {
    Node node(nranks, 1 << 20);
    on_all_ranks(nranks, [&](int rank) {
      NodeGroup& group = node.group(rank);
      NodeAllreduce rounds(group, pass == 0 ? 8192 : 0);
      std::mt19937 draw(17 + static_cast<unsigned>(rank));
      std::vector<uint16_t> data(count);
      for (auto& x : data) x = static_cast<uint16_t>(0x3f00 + draw() % 0x200);
      Agreed agreed;
      agreed.dtype = Dtype::bf16;
      agreed.count = count;
      const Local local = local_of(data.data(), data.data(), true);
      rounds.prepare(agreed, local, Access{});
      group.announce(Announcement{});
      ASSERT_TRUE(until_finished([&] { return group.gate(); }).ok());
      ASSERT_TRUE(until_finished([&] { return rounds.poll(false); }).ok());
      results[static_cast<size_t>(pass * nranks + rank)] = data;
    });
  }
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

}  // namespace
}  // namespace tutti::shm
