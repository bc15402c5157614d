#include "core/strips.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace tutti {
namespace {

using Runs = std::vector<Run>;  // testing::Test has a Run of its own

// Byte by byte: where each packed byte lies in the buffer.
std::vector<int64_t> places(const Runs& runs) {
  std::vector<int64_t> all;
  for (const Run& run : runs)
    for (size_t i = 0; i < run.bytes; ++i) all.push_back(run.offset + static_cast<int64_t>(i));
  return all;
}

std::vector<int64_t> places(const std::vector<Strip>& strips, size_t bytes) {
  std::vector<int64_t> all(bytes, INT64_MIN);
  for (const Strip& strip : strips) {
    EXPECT_LE(uint64_t{strip.bytes} * strip.runs, strip_bytes);
    for (uint32_t r = 0; r < strip.runs; ++r)
      for (uint32_t i = 0; i < strip.bytes; ++i) {
        const uint64_t at = strip.packed + uint64_t{r} * strip.bytes + i;
        if (at >= bytes || all[at] != INT64_MIN) {
          ADD_FAILURE() << "byte " << at << " twice or beyond " << bytes;
          return all;
        }
        all[at] = strip.offset + r * strip.stride + i;
      }
  }
  return all;
}

TEST(Strips, HoldEveryByteOnceInTheOrderOfTheRuns) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 draw(seed);
  for (int i = 0; i < 200; ++i) {
    Runs runs;
    int64_t at = static_cast<int64_t>(draw() % 1000) - 500;
    while (runs.size() < draw() % 40) {
      const size_t lengths[] = {0, 1, 4, 100, 16384, 16385, 50000};
      const size_t bytes = lengths[draw() % 7];
      const int64_t stride = static_cast<int64_t>(draw() % 3000) - 1500;
      for (size_t k = draw() % 6; k != 0; --k, at += stride) runs.push_back({at, bytes});
      at += 7;
    }
    const std::vector<int64_t> want = places(runs);
    ASSERT_EQ(places(make_strips(runs), want.size()), want);
  }
}

TEST(Strips, OfAVectorTypeAreFew) {
  Runs column;
  for (int64_t i = 0; i < 1'000'000; ++i) column.push_back({i * 8000, 8});
  EXPECT_EQ(make_strips(column).size(), (8'000'000 + strip_bytes - 1) / strip_bytes);
}

}  // namespace
}  // namespace tutti
