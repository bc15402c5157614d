#include "base/status.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tutti {
namespace {

Status fail_with(Code code) {
  TUTTI_TRY(Status(code));
  return Code::internal;
}

TEST(Status, DefaultIsOk) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(std::string(Status().text()), "success");
}

TEST(Status, TryPassesTheFirstCodeOn) {
  EXPECT_EQ(fail_with(Code::timeout), Status(Code::timeout));
  EXPECT_EQ(fail_with(Code::ok), Status(Code::internal));
}

TEST(Result, HoldsAValueOrACode) {
  Result<int> good(7);
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, 7);
  Result<int> bad(Code::no_memory);
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status(), Status(Code::no_memory));
}

}  // namespace
}  // namespace tutti
