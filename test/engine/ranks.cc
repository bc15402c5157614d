#include "ranks.hpp"

#include <cstdio>
#include <cstdlib>

namespace tutti {

uint64_t test_seed() {
  static const uint64_t seed = [] {
    const char* given = std::getenv("TUTTI_TEST_SEED");
    uint64_t value = given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device{}();
    std::printf("TUTTI_TEST_SEED=%llu\n", static_cast<unsigned long long>(value));
    return value;
  }();
  return seed;
}

void run_ranks(int nranks, const std::function<void(int)>& f) {
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < nranks; ++rank) threads.emplace_back([&f, rank] { f(rank); });
}

uint64_t compose(uint64_t lower, uint64_t higher) {
  const uint32_t a = static_cast<uint32_t>(lower >> 32), b = static_cast<uint32_t>(lower);
  const uint32_t c = static_cast<uint32_t>(higher >> 32), d = static_cast<uint32_t>(higher);
  return uint64_t{c * a} << 32 | static_cast<uint32_t>(c * b + d);
}

namespace {

template <class F>
void each(void* to, const void* lower, const void* higher, size_t count, F f) {
  for (size_t i = 0; i < count; ++i)
    static_cast<uint64_t*>(to)[i] =
        f(static_cast<const uint64_t*>(lower)[i], static_cast<const uint64_t*>(higher)[i]);
}

}  // namespace

Reduction composition() {
  Reduction reduction;
  reduction.op = Op::user;
  reduction.dtype = Dtype::u64;
  reduction.function = [](const Reduction&, void* to, const void* lower, const void* higher,
                          size_t count) { each(to, lower, higher, count, compose); };
  return reduction;
}

Reduction sum_u64() {
  Reduction reduction;
  reduction.dtype = Dtype::u64;
  reduction.function = [](const Reduction&, void* to, const void* lower, const void* higher,
                          size_t count) {
    each(to, lower, higher, count, [](uint64_t a, uint64_t b) { return a + b; });
  };
  return reduction;
}

Ended poll_operation(Operation& operation, uint64_t polls) {
  for (uint64_t i = 0; i < polls; ++i) {
    Poll poll = operation.poll();
    if (poll.finished()) return {true, poll.status()};
    std::this_thread::yield();
  }
  return {};
}

Ended run_operation(Operation& operation, uint64_t polls) {
  if (Status status = operation.start(); !status.ok()) return {true, status};
  return poll_operation(operation, polls);
}

}  // namespace tutti
