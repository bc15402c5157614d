#include "base/text.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tutti {
namespace {

TEST(Text, FormatsValuesIntoAString) {
  EXPECT_EQ(text("rank {} of {}: {:>4}|{:.2f}", 3, 8u, "ab", 1.005f), "rank 3 of 8:   ab|1.00");
  EXPECT_EQ(text("nothing"), "nothing");
  EXPECT_EQ(text("{{}} {}", std::string(5000, 'x')), "{} " + std::string(5000, 'x'));
}

}  // namespace
}  // namespace tutti
