// Ranks as threads, and one call of a schedule on each of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "engine/executor.hpp"
#include "pml/transport.hpp"

namespace tutti {

// The seed of a test: TUTTI_TEST_SEED, or fresh. Printed once, to repeat a failure.
uint64_t test_seed();

// Runs f(0) .. f(nranks - 1) side by side and returns when all have returned.
void run_ranks(int nranks, const std::function<void(int)>& f);

// An operation that is associative and not commutative, exact on any data: composition of the
// affine maps x -> a x + b modulo 2^32, (a, b) packed in 64 bits. lower is applied first.
uint64_t compose(uint64_t lower, uint64_t higher);
Reduction composition();
// Sum modulo 2^64.
Reduction sum_u64();

// Starts the operation and polls it to its end, yielding; gives up after `polls` looks.
struct Ended {
  bool finished = false;
  Status status;
};
Ended run_operation(Operation& operation, uint64_t polls = ~uint64_t{0});
Ended poll_operation(Operation& operation, uint64_t polls = ~uint64_t{0});

}  // namespace tutti
