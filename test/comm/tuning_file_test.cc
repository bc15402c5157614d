#include "comm/tuning_file.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "base/log.hpp"

namespace tutti {
namespace {

class File {
 public:
  explicit File(const std::string& content)
      : path_(testing::TempDir() + "tutti-table." + std::to_string(getpid())) {
    std::ofstream(path_) << content;
  }
  ~File() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(TuningFile, NoPathIsNoTable) {
  const Result<TuningFile> table = read_tuning_file("");
  ASSERT_TRUE(table.ok());
  EXPECT_TRUE(table->rows.empty());
  EXPECT_EQ(table->hash, 0U);
}

TEST(TuningFile, RowsAndHashAreThoseOfTheContent) {
  const std::string rows = "# measured\nallreduce ring @ 1m.. nodes=2..\nbcast below @ ..4k\n";
  uint64_t hash = 0;
  {
    const File file(rows);
    const Result<TuningFile> table = read_tuning_file(file.path());
    ASSERT_TRUE(table.ok());
    ASSERT_EQ(table->rows.size(), 2U);
    EXPECT_STREQ(table->rows[0].algorithm->scheme, "ring");
    EXPECT_EQ(table->rows[0].bytes.least, uint64_t{1} << 20);
    EXPECT_EQ(table->rows[1].coll, Coll::bcast);
    EXPECT_EQ(table->rows[1].algorithm, nullptr);
    hash = table->hash;
    EXPECT_NE(hash, 0U);
    EXPECT_EQ(read_tuning_file(file.path())->hash, hash);
  }
  const File other(rows + "\n");
  EXPECT_NE(read_tuning_file(other.path())->hash, hash);
}

TEST(TuningFile, FaultsAreBadSettings) {
  const log::Level before = log::threshold.exchange(log::Level::off);
  EXPECT_EQ(read_tuning_file("/nowhere/table").status(), Status(Code::bad_setting));
  for (const char* bad :
       {"allreduce no_such_scheme\n", "nothing ring\n", "allreduce ring @ x=1\n"}) {
    const File file(bad);
    EXPECT_EQ(read_tuning_file(file.path()).status(), Status(Code::bad_setting)) << bad;
  }
  log::threshold.store(before);
}

}  // namespace
}  // namespace tutti
