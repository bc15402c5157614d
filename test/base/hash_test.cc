#include "base/hash.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

// The published values of FNV-1a.
static_assert(hash_of("") == 0xcbf29ce484222325);
static_assert(hash_of("a") == 0xaf63dc4c8601ec8c);
static_assert(hash_of("foobar") == 0x85944171f73967e8);

TEST(Hash, GoesOnWhereItStopped) {
  const char bytes[] = {'f', 'o', '\0', static_cast<char>(0xff), 'b'};
  const uint64_t whole = hash_of(bytes, sizeof bytes);
  for (size_t i = 0; i <= sizeof bytes; ++i)
    EXPECT_EQ(hash_of(bytes + i, sizeof bytes - i, hash_of(bytes, i)), whole) << i;
  EXPECT_NE(hash_of(bytes, 2), hash_of(bytes, 3)) << "a zero byte counts";
}

}  // namespace
}  // namespace tutti
