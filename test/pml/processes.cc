#include "processes.hpp"

#include <gtest/gtest.h>

namespace tutti {

namespace {

pid_t spawn(Shared& shared, int rank, int nranks, const std::function<void(Process&)>& f) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  Process process(shared, rank, nranks);
  f(process);
  std::fflush(nullptr);
  // No destructors of the parent's test program run here.
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace

std::vector<int> run_processes(int nranks, const std::function<void(Process&)>& f, int limit_s) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Shared& shared = *new (memory) Shared;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < nranks; ++rank) pids.push_back(spawn(shared, rank, nranks, f));
  std::vector<int> ends(pids.size(), -1);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(limit_s);
  size_t left = pids.size();
  while (left != 0) {
    const bool late = std::chrono::steady_clock::now() > end;
    for (size_t i = 0; i < pids.size(); ++i) {
      if (ends[i] != -1) continue;
      if (late) kill(pids[i], SIGKILL);
      int status = 0;
      if (waitpid(pids[i], &status, late ? 0 : WNOHANG) != pids[i]) continue;
      ends[i] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      --left;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  munmap(memory, sizeof(Shared));
  return ends;
}

}  // namespace tutti
