#include "shm/node_group.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/log.hpp"
#include "base/text.hpp"
#include "node_fixture.hpp"

namespace tutti::shm {
namespace {

TEST(NodeGroup, NamesWhoDisagreesAndFailsOnAllRanks) {
  const std::string path =
      std::filesystem::temp_directory_path() / text("node_group_test.{}", getpid());
  ASSERT_TRUE(log::open(log::Level::error, path));
  constexpr int nranks = 3;
  Node node(nranks, 0);
  on_all_ranks(nranks, [&](int rank) {
    NodeGroup& group = node.group(rank);
    Announcement announcement;
    announcement.signature = rank == 1 ? 2 : 1;
    announcement.count = rank == 1 ? 51 : 41;
    announcement.detail = static_cast<uint32_t>(Dtype::f64) << 8;
    group.announce(announcement);
    EXPECT_EQ(until_finished([&] { return group.gate(); }), Status(Code::mismatch));
    // No later call begins on a group that has lost its step.
    announcement.signature = 9;
    group.announce(announcement);
    EXPECT_FALSE(until_finished([&] { return group.gate(); }).ok());
  });
  std::stringstream said;
  said << std::ifstream(path).rdbuf();
  ASSERT_TRUE(log::open(log::Level::warn, "/dev/stderr"));
  std::filesystem::remove(path);
  for (const char* part : {"rank 0 has allreduce of 41", "rank 1 has allreduce of 51"})
    EXPECT_NE(said.str().find(part), std::string::npos) << said.str();
}

TEST(NodeGroup, AbortEndsAWaitingGate) {
  Node node(2, 0);
  node.group(0).announce(Announcement{});
  EXPECT_FALSE(node.group(0).gate().finished());
  EXPECT_EQ(node.group(0).missing(), 1);
  node.group(1).abort(Code::timeout);
  EXPECT_EQ(until_finished([&] { return node.group(0).gate(); }), Status(Code::timeout));
}

// Whichever comes first, and however few looks the others take.
TEST(NodeGroup, AnAbortBeforeACallFailsItForAll) {
  for (int last = 0; last < 2; ++last) {
    Node node(2, 0);
    node.group(0).abort(Code::timeout);
    for (int rank : {1 - last, last}) node.group(rank).announce(Announcement{});
    for (int rank : {0, 1}) {
      const Poll poll = node.group(rank).gate();
      ASSERT_TRUE(poll.finished());
      EXPECT_EQ(poll.status(), Status(Code::timeout)) << "rank " << rank;
    }
  }
}

}  // namespace
}  // namespace tutti::shm
