// Every collective of one meeting, against what the standard says it gives.
#include "shm/node_exchange.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "node_fixture.hpp"

namespace tutti::shm {
namespace {

constexpr int64_t poison = 0x5b5b5b5b5b5b5b5b;
constexpr size_t canaries = 8;

constexpr Coll colls[] = {Coll::allgather,
                          Coll::allgatherv,
                          Coll::alltoall,
                          Coll::reduce_scatter,
                          Coll::reduce_scatter_block,
                          Coll::scan,
                          Coll::exscan,
                          Coll::bcast,
                          Coll::gather,
                          Coll::scatter,
                          Coll::reduce};

struct Case {
  Coll coll = Coll::allgather;
  uint64_t count = 0;
  std::vector<uint64_t> counts;
  std::vector<uint64_t> displs;  // of allgatherv, with gaps
  int root = 0;
  bool in_place = false;
  bool indirect = false;
  bool ahead = false;
  int64_t salt = 0;
};

bool is_rooted(Coll coll) {
  return coll == Coll::bcast || coll == Coll::gather || coll == Coll::scatter ||
         coll == Coll::reduce;
}

int64_t value(const Case& test, int rank, uint64_t i) {
  uint64_t x = static_cast<uint64_t>(test.salt) * 7919 + static_cast<uint64_t>(rank) * 104729 + i;
  x = (x ^ x >> 31) * 0x9e3779b97f4a7c15;
  return static_cast<int64_t>(x >> 20);
}

uint64_t block(const Case& test, int rank) {
  return test.counts.empty() ? test.count : test.counts[static_cast<size_t>(rank)];
}

uint64_t packed(const Case& test, int rank) {
  uint64_t sum = 0;
  for (int r = 0; r < rank; ++r) sum += block(test, r);
  return sum;
}

uint64_t displ(const Case& test, int rank) {
  return test.displs.empty() ? packed(test, rank) : test.displs[static_cast<size_t>(rank)];
}

uint64_t input_count(const Case& test, int rank, int nranks) {
  switch (test.coll) {
    case Coll::allgather:
    case Coll::allgatherv:
      return block(test, rank);
    case Coll::scan:
    case Coll::exscan:
    case Coll::gather:
    case Coll::reduce:
      return test.count;
    case Coll::bcast:
      return rank == test.root ? test.count : 0;
    case Coll::scatter:
      return rank == test.root ? packed(test, nranks) : 0;
    default:
      return packed(test, nranks);
  }
}

// What rank's output holds: poison where the collective writes nothing.
std::vector<int64_t> expected(const Case& test, int me, int nranks, std::vector<int64_t> out) {
  switch (test.coll) {
    case Coll::allgather:
    case Coll::allgatherv:
      for (int r = 0; r < nranks; ++r)
        for (uint64_t i = 0; i < block(test, r); ++i) out[displ(test, r) + i] = value(test, r, i);
      break;
    case Coll::gather:
      for (int r = 0; r < nranks && me == test.root; ++r)
        for (uint64_t i = 0; i < test.count; ++i) out[packed(test, r) + i] = value(test, r, i);
      break;
    case Coll::bcast:
      for (uint64_t i = 0; i < test.count; ++i) out[i] = value(test, test.root, i);
      break;
    case Coll::scatter:
      for (uint64_t i = 0; i < test.count; ++i)
        out[i] = value(test, test.root, packed(test, me) + i);
      break;
    case Coll::reduce:
      for (uint64_t i = 0; i < test.count && me == test.root; ++i) {
        out[i] = 0;
        for (int r = 0; r < nranks; ++r) out[i] += value(test, r, i);
      }
      break;
    case Coll::alltoall:
      for (int r = 0; r < nranks; ++r)
        for (uint64_t i = 0; i < test.count; ++i)
          out[packed(test, r) + i] = value(test, r, packed(test, me) + i);
      break;
    case Coll::scan:
    case Coll::exscan: {
      const int upto = test.coll == Coll::scan ? me + 1 : me;
      for (uint64_t i = 0; i < test.count && upto != 0; ++i) {
        out[i] = 0;
        for (int r = 0; r < upto; ++r) out[i] += value(test, r, i);
      }
      break;
    }
    default:
      for (uint64_t i = 0; i < block(test, me); ++i) {
        out[i] = 0;
        for (int r = 0; r < nranks; ++r) out[i] += value(test, r, packed(test, me) + i);
      }
  }
  return out;
}

void run_case(NodeGroup& group, NodeExchange& rounds, const Case& test) {
  const int me = group.rank();
  const int n = group.nranks();
  const uint64_t in_count = input_count(test, me, n);
  const uint64_t room = std::max(packed(test, n), displ(test, n - 1) + block(test, n - 1));
  std::vector<int64_t> out(std::max(room, test.count) + canaries, poison);
  std::vector<int64_t> in(in_count);
  for (uint64_t i = 0; i < in_count; ++i) in[i] = value(test, me, i);
  // In a rooted one a matter of the root; a scatter's has no output then, a bcast's buffer is both.
  const bool in_place = is_rooted(test.coll)
                            ? test.coll == Coll::bcast || (test.in_place && me == test.root)
                            : test.in_place;
  const bool gather =
      test.coll == Coll::allgather || test.coll == Coll::allgatherv || test.coll == Coll::gather;
  if (in_place && test.coll != Coll::scatter)
    std::copy(in.begin(), in.end(), out.begin() + static_cast<long>(gather ? displ(test, me) : 0));
  const std::vector<int64_t> want = expected(test, me, n, out);
  const std::vector<int64_t> input = in;
  Agreed agreed;
  agreed.coll = test.coll;
  agreed.dtype = Dtype::i64;
  agreed.count = test.count;
  agreed.counts = test.counts;
  agreed.root = test.root;
  Local local = local_of(in_place ? out.data() : in.data(), out.data(), in_place);
  // What this rank has no use for does not exist.
  if (is_rooted(test.coll)) {
    if (test.coll == Coll::scatter && me != test.root) local.send = nullptr;
    if (test.coll == Coll::scatter && in_place) {
      local.send = in.data();
      local.recv = nullptr;
    }
    if ((test.coll == Coll::gather || test.coll == Coll::reduce) && me != test.root)
      local.recv = nullptr;
    local.in_place = in_place && test.coll != Coll::bcast;
  }
  local.recv_displs = test.displs;
  Access access;
  access.direct = !test.indirect;
  access.copy = plain_copy;
  rounds.prepare(agreed, local, access);
  Announcement announcement;
  if (test.ahead) announcement.laid_out = rounds.lay_out_first();
  group.announce(announcement);
  ASSERT_TRUE(until_finished([&] { return group.gate(); }).ok());
  const bool laid_out = group.summary().all_laid_out;
  ASSERT_TRUE(until_finished([&] { return rounds.poll(laid_out); }).ok());
  // An in-place reduction may leave anything in the rest of its vector.
  size_t compared = local.recv == nullptr ? 0 : want.size();
  if (test.in_place &&
      (test.coll == Coll::reduce_scatter || test.coll == Coll::reduce_scatter_block))
    compared = block(test, me);
  for (size_t i = 0; i < compared; ++i)
    ASSERT_EQ(out[i], want[i]) << name(test.coll) << " element " << i << " rank " << me << " of "
                               << n << " count " << test.count << " salt " << test.salt;
  for (size_t i = out.size() - canaries; i < out.size(); ++i) ASSERT_EQ(out[i], poison);
  ASSERT_EQ(in, input) << "the input changed";
}

void sweep(int nranks, size_t lane_bytes, int cases) {
  Node node(nranks, lane_bytes);
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  on_all_ranks(nranks, [&](int rank) {
    NodeGroup& group = node.group(rank);
    NodeExchange rounds(group);
    std::mt19937 draw(seed);  // the same calls on all ranks
    std::mt19937 own(seed + static_cast<unsigned>(rank) + 1);
    for (int i = 0; i < cases; ++i) {
      Case test;
      test.salt = i;
      test.coll = colls[draw() % std::size(colls)];
      const uint64_t most[] = {9, 300, 5000, 60000};
      const uint64_t up_to = most[draw() % 4];
      test.count = draw() % up_to;
      if (test.coll == Coll::allgatherv || test.coll == Coll::reduce_scatter) {
        for (int r = 0; r < nranks; ++r)
          test.counts.push_back(draw() % 3 == 0 ? 0 : draw() % up_to);
        test.count = 0;
      }
      if (test.coll == Coll::allgatherv)
        for (uint64_t at = 0; uint64_t count : test.counts) {
          test.displs.push_back(at);
          at += count + draw() % 5;
        }
      test.root = static_cast<int>(draw() % static_cast<unsigned>(nranks));
      test.in_place = draw() % 2 == 0;
      test.indirect = own() % 3 == 0;
      test.ahead = !test.indirect && own() % 2 == 0;
      run_case(group, rounds, test);
      if (testing::Test::HasFatalFailure()) std::abort();  // peers would wait for ever
    }
  });
}

TEST(NodeExchange, GivesWhatTheStandardSays) {
  for (int nranks : {2, 3, 5, 8}) sweep(nranks, 1 << 20, 200);
}

TEST(NodeExchange, WorksWithoutAndWithTheSmallestLanes) {
  sweep(3, 0, 60);
  sweep(4, 24576, 60);
}

}  // namespace
}  // namespace tutti::shm
