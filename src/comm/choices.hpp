// Choices: what tune::select has said, kept by the call's agreed facts: a choice takes microseconds.
//
// Read without a lock by any thread: entries are only added, at the front of their bucket, and stay to
// the end.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "core/problem.hpp"
#include "topo/topology.hpp"
#include "tune/select.hpp"

namespace tutti {

class Choices {
 public:
  Choices() = default;
  ~Choices();
  Choices(const Choices&) = delete;
  Choices& operator=(const Choices&) = delete;

  Choice get(const Agreed& agreed, const Topology& topology, const Tuning& tuning);

 private:
  struct Entry {
    Agreed agreed;
    std::vector<uint64_t> counts;
    Choice choice;
    Entry* next = nullptr;
  };
  static bool same(const Entry& entry, const Agreed& agreed);

  // A program of more kinds of calls than that chooses anew each time.
  static constexpr uint32_t limit = 4096;
  std::array<std::atomic<Entry*>, 256> buckets_{};
  std::atomic<uint32_t> size_{0};
};

}  // namespace tutti
