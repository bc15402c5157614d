#include "shm/segment.hpp"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

namespace tutti::shm {
namespace {

int entries_of(const char* folder) {
  int n = 0;
  DIR* directory = opendir(folder);
  if (directory == nullptr) return -1;
  while (readdir(directory) != nullptr) ++n;
  closedir(directory);
  return n;
}

TEST(Segment, IsSharedWithAnotherProcessAndLeavesNoName) {
  const int before = entries_of("/dev/shm");
  auto own = Segment::create(1 << 20);
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(entries_of("/dev/shm"), before);
  std::byte* at = (*own)->at(Segment::header_bytes);
  at[0] = std::byte{1};
  // The name as bytes: fork shares the mapping, so the child must not find it in its own table.
  SegmentName name = (*own)->name();
  const pid_t child = fork();
  if (child == 0) {
    own = Result<std::shared_ptr<Segment>>(Code::internal);  // drops the inherited mapping
    auto mapped = Segment::map(name);
    if (!mapped.ok()) _exit(1);
    std::byte* there = (*mapped)->at(Segment::header_bytes);
    if (there[0] != std::byte{1}) _exit(2);
    there[1] = std::byte{2};
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(at[1], std::byte{2});
}

TEST(Segment, MapsOnceAProcess) {
  auto own = Segment::create(4096 * 4);
  ASSERT_TRUE(own.ok());
  auto again = Segment::map((*own)->name());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*own)->at(0), (*again)->at(0));
}

TEST(Segment, RefusesWhatIsNotTheAnnouncedOne) {
  auto own = Segment::create(4096 * 4);
  ASSERT_TRUE(own.ok());
  SegmentName name = (*own)->name();
  name.nonce[0] ^= 1;
  EXPECT_EQ(Segment::map(name).status(), Status(Code::peer_lost)) << "another nonce";
  name = (*own)->name();
  name.bytes *= 2;
  EXPECT_EQ(Segment::map(name).status(), Status(Code::peer_lost)) << "another size";
  name = (*own)->name();
  name.fd = 0;
  EXPECT_EQ(Segment::map(name).status(), Status(Code::peer_lost)) << "another file";
  name.pid = 0x7ffffff0;
  EXPECT_EQ(Segment::map(name).status(), Status(Code::peer_lost)) << "no such process";
}

}  // namespace
}  // namespace tutti::shm
