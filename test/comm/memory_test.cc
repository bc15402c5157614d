#include "comm/memory.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace tutti::memory {
namespace {

TEST(Memory, BlocksAreApartAndHoldWhatIsWritten) {
  const size_t sizes[] = {1, 4096, 4097, 100000, size_t{3} << 20};
  std::vector<char*> blocks;
  for (const size_t bytes : sizes) {
    auto* block = static_cast<char*>(take_block(bytes));
    ASSERT_NE(block, nullptr);
    std::memset(block, static_cast<int>(blocks.size()), bytes);
    blocks.push_back(block);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(blocks[i][0], static_cast<char>(i));
    EXPECT_EQ(blocks[i][sizes[i] - 1], static_cast<char>(i));
  }
  for (char* block : blocks) give_block(block);
}

TEST(Memory, ABlockThatWasGivenBackIsTakenAgain) {
  void* first = take_block(5000);
  ASSERT_NE(first, nullptr);
  give_block(first);
  // Any size up to the same power of two.
  void* again = take_block(8192);
  EXPECT_EQ(again, first);
  // It is in use now: the next is another.
  void* other = take_block(8192);
  EXPECT_NE(other, first);
  give_block(other);
  give_block(again);
}

TEST(Memory, HugeBlocksAreNotKept) {
  // More than all that is kept together: given back to the system at once, so that taking blocks of
  // that size again and again does not grow the process.
  constexpr size_t huge = size_t{65} << 20;
  void* kept = take_block(1 << 20);
  give_block(kept);
  for (int i = 0; i < 3; ++i) {
    void* block = take_block(huge);
    ASSERT_NE(block, nullptr);
    give_block(block);
  }
  void* again = take_block(1 << 20);
  EXPECT_EQ(again, kept);
  give_block(again);
}

TEST(Memory, HostMemoryIsNotOnADevice) {
  int here = 0;
  std::vector<char> heap(10);
  const void* pointers[] = {&here, heap.data(), nullptr};
  Place places[3];
  look(pointers, 3, places);
  for (const Place& place : places) EXPECT_FALSE(place.on_device);
}

}  // namespace
}  // namespace tutti::memory
