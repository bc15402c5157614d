// One collective call with random data: the memory of all ranks, the executors of those that run in
// this process, and the sequential reference.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "../coll/call.hpp"
#include "coll/registry.hpp"
#include "engine/executor.hpp"
#include "guarded.hpp"
#include "ranks.hpp"

namespace tutti {

// One rank a node, or several: some algorithms want levels.
inline Topology trial_topology(int nranks, uint64_t draw) {
  Topology topology = Topology::flat(nranks);
  const int each = 1 + static_cast<int>(draw % 3);
  for (int rank = 0; rank < nranks && each > 1; ++rank) topology.ranks.push_back({rank / each, -1});
  return topology;
}

// A device: the executor has addresses where nothing lies, copies go to the memory meant and end some
// polls later.
class TrialDevice final : public CopyRunner {
 public:
  explicit TrialDevice(uint64_t seed) : random_(seed) {}

  void* hide(Guarded& memory) {
    for (Hidden& hidden : hidden_)
      if (hidden.memory == &memory) return hidden.decoy.data();
    hidden_.push_back({&memory, std::vector<unsigned char>(memory.bytes() + 1, 0x5a)});
    return hidden_.back().decoy.data();
  }
  bool intact() const {
    for (const Hidden& hidden : hidden_)
      for (unsigned char byte : hidden.decoy)
        if (byte != 0x5a) return false;
    return true;
  }

  Status start(void* to, const void* from, size_t bytes, uint64_t* handle) override {
    *handle = copies_.size();
    copies_.push_back({find(to), find(const_cast<void*>(from)), bytes, random_() % 4});
    return {};
  }
  Poll poll(uint64_t handle) override {
    Copy& copy = copies_[handle];
    if (copy.polls_left-- > 0) return Poll::busy();
    std::memmove(copy.to, copy.from, copy.bytes);
    return Poll::done();
  }

 private:
  struct Hidden {
    Guarded* memory;
    std::vector<unsigned char> decoy;
  };
  struct Copy {
    unsigned char* to;
    const unsigned char* from;
    size_t bytes;
    uint64_t polls_left;
  };
  unsigned char* find(void* address) {
    auto* at = static_cast<unsigned char*>(address);
    for (Hidden& hidden : hidden_)
      if (at >= hidden.decoy.data() && at < hidden.decoy.data() + hidden.decoy.size())
        return hidden.memory->data() + (at - hidden.decoy.data());
    return at;
  }

  std::mt19937_64 random_;
  std::deque<Hidden> hidden_;
  std::vector<Copy> copies_;
};

class Trial {
 public:
  // The transport of a rank, or nullptr for one of another process. Every process draws the same
  // data from the seed.
  using TransportOf = std::function<Transport*(int rank)>;

  Trial(const Algorithm& algorithm, const Call& call, const Params& params, uint64_t seed,
        const Topology& topology, const TransportOf& transport_of)
      : call_(call), nranks_(static_cast<int>(call.problems().size())), topology_(topology) {
    schedules_ = schedules(algorithm, call, topology_, params);
    for (int rank = 0; rank < nranks_ && !schedules_.empty(); ++rank) {
      const Schedule& schedule = schedules_[static_cast<size_t>(rank)];
      memory_.push_back(
          std::make_unique<Memory>(schedule, seed * 64 + static_cast<uint64_t>(rank)));
      executors_.push_back(nullptr);
      if (Transport* transport = transport_of(rank)) {
        Executor::Places places;
        places.schedule = &schedule;
        places.transport = transport;
        places.extent_bytes = 8;
        Result<std::unique_ptr<Executor>> executor = Executor::open(std::move(places));
        if (executor.ok()) executors_.back() = std::move(*executor);
      }
    }
  }

  // New data for every rank.
  void fill() {
    contributed_.clear();
    for (int rank = 0; rank < nranks_; ++rank) {
      Memory& memory = *memory_[static_cast<size_t>(rank)];
      memory.fill();
      contributed_.push_back(contributed(rank));
    }
  }

  void run(int rank, uint64_t sequence) {
    const size_t r = static_cast<size_t>(rank);
    ASSERT_LT(r, executors_.size()) << "no schedules";
    ASSERT_NE(executors_[r], nullptr);
    Memory& memory = *memory_[r];
    const Local& local = call_.problems()[r].local;
    ExecutorCall call{memory.input.data(), memory.output.data(), memory.scratch.data(),
                      call_.agreed().commutative ? sum_u64() : composition(), sequence};
    call.copies = &memory.copies;
    call.input_on_device = local.send_on_device;
    call.output_on_device = local.recv_on_device;
    if (local.send_on_device) call.input = memory.copies.hide(memory.input);
    if (local.recv_on_device) call.output = memory.copies.hide(memory.output);
    executors_[r]->bind(call);
    Status status = run_operation(*executors_[r]).status;
    EXPECT_TRUE(status.ok()) << status.text();
  }

  void check(int rank) {
    const Memory& memory = *memory_[static_cast<size_t>(rank)];
    Words expected = memory.before;
    for (const Piece& piece : expectation(call_.problems(), rank))
      for (uint64_t i = 0; i < piece.where.count; ++i)
        expected[piece.where.offset + i] = reference(piece, i);
    EXPECT_TRUE(words_of(memory.output) == expected) << "rank " << rank << " has a wrong result";
    EXPECT_TRUE(memory.intact()) << "rank " << rank << ": input or canaries changed";
  }

 private:
  using Words = std::vector<uint64_t>;

  // Sized by the contract, elements of 64 bits.
  struct Memory {
    Memory(const Schedule& schedule, uint64_t seed)
        : input(schedule.input_count * 8),
          output(schedule.output_count * 8),
          scratch(schedule.scratch_count * 8),
          copies(seed),
          random(seed) {}
    void fill() {
      for (Guarded* memory : {&input, &output})
        for (size_t i = 0; i < memory->bytes() / 8; ++i) {
          const uint64_t value = random();
          std::memcpy(memory->data() + 8 * i, &value, 8);
        }
      before = words_of(output);
      sent = words_of(input);
    }
    bool intact() const {
      return input.intact() && output.intact() && scratch.intact() && copies.intact() &&
             words_of(input) == sent;
    }
    Guarded input, output, scratch;
    TrialDevice copies;
    Words before, sent;
    std::mt19937_64 random;
  };

  static Words words_of(const Guarded& memory) {
    Words words(memory.bytes() / 8);
    if (!words.empty()) std::memcpy(words.data(), memory.data(), memory.bytes());
    return words;
  }

  // The rank's contribution, element by element.
  Words contributed(int rank) const {
    const Memory& memory = *memory_[static_cast<size_t>(rank)];
    Words all;
    for (const Piece& piece :
         contribution(call_.problems()[static_cast<size_t>(rank)], rank, nranks_)) {
      const Words& from = piece.where.space == Space::input ? memory.sent : memory.before;
      all.resize(std::max<size_t>(all.size(), piece.index + piece.where.count));
      for (uint64_t i = 0; i < piece.where.count; ++i)
        all[piece.index + i] = from[piece.where.offset + i];
    }
    return all;
  }

  uint64_t reference(const Piece& piece, uint64_t i) const {
    uint64_t value = contributed_[static_cast<size_t>(piece.first)].at(piece.index + i);
    for (int rank = piece.first + 1; rank <= piece.last; ++rank) {
      const uint64_t next = contributed_[static_cast<size_t>(rank)].at(piece.index + i);
      value = call_.agreed().commutative ? value + next : compose(value, next);
    }
    return value;
  }

  const Call& call_;
  int nranks_;
  Topology topology_;
  std::vector<Schedule> schedules_;
  std::vector<std::unique_ptr<Memory>> memory_;
  std::vector<Words> contributed_;
  std::vector<std::unique_ptr<Executor>> executors_;
};

}  // namespace tutti
