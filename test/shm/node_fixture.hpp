// Ranks as threads of one process, each with its own segment.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "shm/node_group.hpp"

namespace tutti::shm {

// The groups of n ranks, as each of them sees the others.
class Node {
 public:
  Node(int nranks, size_t lane_bytes) {
    std::vector<Member> members;
    for (int r = 0; r < nranks; ++r) {
      auto pool = SlotPool::create(lane_bytes);
      EXPECT_TRUE(pool.ok());
      auto grant = (*pool)->take(static_cast<uint32_t>(nranks));
      EXPECT_TRUE(grant.ok());
      Member member;
      member.segment = (*pool)->segment();
      member.slot = reinterpret_cast<Slot*>(member.segment->at(grant->slot_offset));
      if (grant->lane.offset != 0) member.lane = member.segment->at(grant->lane.offset);
      members.push_back(member);
      pools_.push_back(std::move(*pool));
    }
    for (int r = 0; r < nranks; ++r)
      groups_.push_back(std::make_unique<NodeGroup>(r, members, lane_bytes));
  }
  NodeGroup& group(int rank) { return *groups_[static_cast<size_t>(rank)]; }

 private:
  std::vector<std::unique_ptr<SlotPool>> pools_;
  std::vector<std::unique_ptr<NodeGroup>> groups_;
};

inline void on_all_ranks(int nranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < nranks; ++r) threads.emplace_back(body, r);
  for (auto& thread : threads) thread.join();
}

template <class Look>
Status until_finished(Look look) {
  for (;;) {
    Poll poll = look();
    if (poll.finished()) return poll.status();
    std::this_thread::yield();
  }
}

inline Status plain_copy(void*, void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
  return {};
}

inline Local local_of(const void* send, void* recv, bool in_place) {
  Local local;
  local.send = send;
  local.recv = recv;
  local.in_place = in_place;
  return local;
}

}  // namespace tutti::shm
