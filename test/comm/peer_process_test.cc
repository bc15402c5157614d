#include "comm/peer_process.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti {
namespace {

TEST(PeerProcess, TellsTheLivingFromTheDeadAndTheGone) {
  EXPECT_TRUE(PeerProcess(getpid()).alive());
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const PeerProcess peer(child);
  EXPECT_TRUE(peer.alive());
  kill(child, SIGKILL);
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_FALSE(peer.alive()) << "dead, not yet reaped";
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(peer.alive()) << "gone";
}

}  // namespace
}  // namespace tutti
