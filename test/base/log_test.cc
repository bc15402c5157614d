#include "base/log.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <thread>
#include <vector>

namespace tutti {
namespace {

// Each test logs to a file of its own; afterwards the sink is standard error at level warn again.
class Log : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() /
            text("log_test.{}.{}", getpid(), reinterpret_cast<uintptr_t>(this));
  }
  void TearDown() override {
    ASSERT_TRUE(log::open(log::Level::warn, "/dev/stderr"));
    log::set_rank(-1);
    std::filesystem::remove(path_);
  }
  void open(log::Level level) { ASSERT_TRUE(log::open(level, path_.string())); }
  std::vector<std::string> lines() const {
    std::ifstream file(path_);
    std::vector<std::string> all;
    for (std::string line; std::getline(file, line);) all.push_back(line);
    return all;
  }
  std::filesystem::path path_;
};

TEST_F(Log, ALineSaysLevelTimePlaceAndArea) {
  open(log::Level::info);
  log::set_rank(7);
  TUTTI_INFO("test", "{} bytes of {}", 12, "text");
  ASSERT_EQ(lines().size(), 1U);
  const std::regex form(
      R"(tutti INFO \d\d:\d\d:\d\d\.\d{3} \S+:(\d+) rank 7 test: 12 bytes of text)");
  std::smatch found;
  const std::string line = lines()[0];
  ASSERT_TRUE(std::regex_match(line, found, form)) << line;
  EXPECT_EQ(found[1], std::to_string(getpid()));
}

TEST_F(Log, OnlyLevelsUpToTheThresholdAreWrittenAndCounted) {
  open(log::Level::warn);
  const uint64_t warned = log::count(log::Level::warn);
  const uint64_t informed = log::count(log::Level::info);
  TUTTI_ERROR("test", "an error");
  TUTTI_WARN("test", "a warning");
  TUTTI_INFO("test", "not this");
  TUTTI_DEBUG("test", "nor this");
  EXPECT_EQ(lines().size(), 2U);
  EXPECT_EQ(log::count(log::Level::warn), warned + 1);
  EXPECT_EQ(log::count(log::Level::info), informed);
}

TEST_F(Log, ArgumentsOfSilentMessagesAreNotEvaluated) {
  open(log::Level::error);
  int evaluated = 0;
  TUTTI_WARN("test", "{}", ++evaluated);
  EXPECT_EQ(evaluated, 0);
}

TEST_F(Log, ErrnoIsKept) {
  open(log::Level::error);
  errno = ENOTTY;
  TUTTI_ERROR("test", "x");
  EXPECT_EQ(errno, ENOTTY);
}

TEST_F(Log, ThePathMayNameTheProcess) {
  const std::string pattern = path_.string() + ".%p";
  ASSERT_TRUE(log::open(log::Level::error, pattern));
  TUTTI_ERROR("test", "x");
  const std::string expected = path_.string() + "." + std::to_string(getpid());
  EXPECT_TRUE(std::filesystem::exists(expected));
  std::filesystem::remove(expected);
}

TEST_F(Log, AFileThatCannotBeOpenedLeavesTheSinkAsItWas) {
  open(log::Level::error);
  EXPECT_FALSE(log::open(log::Level::error, "/dev/null/file"));
  TUTTI_ERROR("test", "still here");
  EXPECT_EQ(lines().size(), 1U);
}

TEST_F(Log, LinesOfSeveralThreadsDoNotMix) {
  open(log::Level::error);
  constexpr int threads = 4;
  constexpr int each = 200;
  std::vector<std::thread> writers;
  for (int t = 0; t < threads; ++t)
    writers.emplace_back([t] {
      for (int i = 0; i < each; ++i) TUTTI_ERROR("test", "{}", std::string(100, char('a' + t)));
    });
  for (std::thread& writer : writers) writer.join();
  const std::regex whole(R"(tutti ERROR .* test: (a{100}|b{100}|c{100}|d{100}))");
  EXPECT_EQ(lines().size(), size_t{threads} * each);
  for (const std::string& line : lines()) EXPECT_TRUE(std::regex_match(line, whole)) << line;
}

}  // namespace
}  // namespace tutti
