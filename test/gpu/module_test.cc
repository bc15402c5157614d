#include "gpu/module.hpp"

#include <gtest/gtest.h>

#include "base/log.hpp"

namespace tutti::gpu {
namespace {

// Tests set the process's choice: put it back for the others.
struct Restored {
  ~Restored() { EXPECT_TRUE(choose("auto").ok()); }
};

TEST(GpuModule, NullModuleSeesOnlyHostMemory) {
  const Module& none = null_module();
  EXPECT_FALSE(none.live());
  int local = 0;
  const void* pointers[] = {&local, nullptr};
  Pointer found[2] = {{Kind::device, 3, 1}, {Kind::device, 3, 1}};
  none.query(pointers, 2, found);
  EXPECT_EQ(found[0].kind, Kind::host);
  EXPECT_EQ(found[1].device, -1);
  Group* group = nullptr;
  Blob blob;
  EXPECT_EQ(none.prepare(GroupSpec{}, &group, &blob), Status(Code::no_device));
}

TEST(GpuModule, AutoFindsNothingWhileTheDriverIsNotLoaded) {
  Restored restored;
  ASSERT_TRUE(choose("auto").ok());
  const uint64_t warnings = log::count(log::Level::warn);
  for (int i = 0; i < 3; ++i) EXPECT_STREQ(module().name, "none");
  EXPECT_FALSE(live());
  EXPECT_EQ(log::count(log::Level::warn), warnings);
}

// One "no" stands for a while; a choice ends it.
TEST(GpuModule, AChoiceIsSeenByTheNextCall) {
  Restored restored;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(choose(i % 2 == 0 ? "auto" : "none").ok());
    ASSERT_FALSE(live());
    ASSERT_FALSE(live());
    ASSERT_TRUE(choose("emu").ok());
    ASSERT_TRUE(live());
  }
}

TEST(GpuModule, NoneStaysNone) {
  Restored restored;
  ASSERT_TRUE(choose("none").ok());
  EXPECT_STREQ(module().name, "none");
}

TEST(GpuModule, RefusesWhatItCannotOpen) {
  Restored restored;
  EXPECT_EQ(choose("metal"), Status(Code::bad_setting));
  EXPECT_EQ(choose("/nowhere/libtutti_cuda.so"), Status(Code::bad_setting));
  EXPECT_STREQ(module().name, "none");
}

TEST(GpuModule, OpensTheEmulationByName) {
  Restored restored;
  ASSERT_TRUE(choose("emu").ok());
  EXPECT_STREQ(module().name, "emu");
  EXPECT_TRUE(live());
}

}  // namespace
}  // namespace tutti::gpu
