// The table of handles against the MPI that is there: run as one process without mpirun.
#include "mpi/handles.hpp"

#include <gtest/gtest.h>

#include <random>
#include <unordered_map>

#include "mpi/below.hpp"

namespace tutti::mpi {
namespace {

TEST(HandleTable, FindsWhatWasAddedAndNothingElse) {
  std::random_device seed_source;
  const unsigned seed = seed_source();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  HandleTable<int> table;
  std::unordered_map<uint64_t, int> reference;
  for (int i = 0; i < 64; ++i) {
    // Addresses of one array, as in Open MPI, and small numbers, as in MPICH.
    const uint64_t key = i % 2 == 0 ? 0x7f0000000000u + random() % 4096 * 0x200 : random() % 4096;
    table.add(key, i);
    reference.emplace(key, i);  // the first one stays here too
  }
  EXPECT_EQ(table.count(), reference.size());
  for (int i = 0; i < 4096; ++i) {
    const uint64_t keys[] = {0x7f0000000000u + static_cast<uint64_t>(i) * 0x200,
                             static_cast<uint64_t>(i)};
    for (const uint64_t key : keys) {
      int value = -1;
      const auto at = reference.find(key);
      ASSERT_EQ(table.find(key, value), at != reference.end());
      ASSERT_EQ(value, at != reference.end() ? at->second : -1);
    }
  }
}

class Opened : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    load_below();
    below.Init.pmpi(nullptr, nullptr);
    open_handles();
  }
  static void TearDownTestSuite() { below.Finalize.pmpi(); }

  static Dtype dtype_of(MPI_Datatype datatype) {
    Reducible found = {};
    EXPECT_TRUE(handles.dtypes.find(datatype, found));
    return found.dtype;
  }
  static bool knows(MPI_Datatype datatype, MPI_Op op) {
    Dtype dtype;
    Op core_op;
    return find_reduction(datatype, op, dtype, core_op);
  }
};

TEST_F(Opened, TypesAreWhatTheCLanguageSays) {
  static_assert(sizeof(long) == 8 && sizeof(int) == 4, "of the machines this was written for");
  EXPECT_EQ(dtype_of(MPI_SIGNED_CHAR), Dtype::i8);
  EXPECT_EQ(dtype_of(MPI_SHORT), Dtype::i16);
  EXPECT_EQ(dtype_of(MPI_INT), Dtype::i32);
  EXPECT_EQ(dtype_of(MPI_LONG), Dtype::i64);
  EXPECT_EQ(dtype_of(MPI_LONG_LONG), Dtype::i64);
  EXPECT_EQ(dtype_of(MPI_UNSIGNED_CHAR), Dtype::u8);
  EXPECT_EQ(dtype_of(MPI_UNSIGNED_SHORT), Dtype::u16);
  EXPECT_EQ(dtype_of(MPI_UNSIGNED), Dtype::u32);
  EXPECT_EQ(dtype_of(MPI_UNSIGNED_LONG), Dtype::u64);
  EXPECT_EQ(dtype_of(MPI_UNSIGNED_LONG_LONG), Dtype::u64);
  EXPECT_EQ(dtype_of(MPI_INT64_T), Dtype::i64);
  EXPECT_EQ(dtype_of(MPI_UINT64_T), Dtype::u64);
  EXPECT_EQ(dtype_of(MPI_AINT), Dtype::i64);
  EXPECT_EQ(dtype_of(MPI_FLOAT), Dtype::f32);
  EXPECT_EQ(dtype_of(MPI_DOUBLE), Dtype::f64);
  EXPECT_EQ(dtype_of(MPI_C_FLOAT_COMPLEX), Dtype::c32);
  EXPECT_EQ(dtype_of(MPI_C_DOUBLE_COMPLEX), Dtype::c64);
  EXPECT_EQ(dtype_of(MPI_C_BOOL), Dtype::l8);
  EXPECT_EQ(dtype_of(MPI_BYTE), Dtype::byte);
  EXPECT_EQ(dtype_of(MPI_DOUBLE_INT), Dtype::f64_i32);
  EXPECT_EQ(dtype_of(MPI_2INT), Dtype::i32_i32);
}

TEST_F(Opened, OperationsAreThoseOfTheStandard) {
  EXPECT_TRUE(knows(MPI_INT, MPI_SUM));
  EXPECT_TRUE(knows(MPI_INT, MPI_LAND));
  EXPECT_FALSE(knows(MPI_FLOAT, MPI_LAND));
  EXPECT_FALSE(knows(MPI_DOUBLE, MPI_BAND));
  EXPECT_TRUE(knows(MPI_DOUBLE_INT, MPI_MINLOC));
  EXPECT_FALSE(knows(MPI_DOUBLE, MPI_MINLOC));
  EXPECT_FALSE(knows(MPI_BYTE, MPI_SUM));
  EXPECT_TRUE(knows(MPI_BYTE, MPI_BXOR));
  // Not on the integers of Fortran and of several languages.
  EXPECT_FALSE(knows(MPI_AINT, MPI_LOR));
  EXPECT_TRUE(knows(MPI_AINT, MPI_BOR));
  EXPECT_FALSE(knows(MPI_INT, MPI_REPLACE));
  EXPECT_FALSE(knows(MPI_INT, MPI_OP_NULL));
}

TEST_F(Opened, TheRestIsForTheBase) {
  EXPECT_FALSE(knows(MPI_CHAR, MPI_SUM));
  EXPECT_FALSE(knows(MPI_WCHAR, MPI_SUM));
  EXPECT_FALSE(knows(MPI_PACKED, MPI_BOR));
  EXPECT_FALSE(knows(MPI_DATATYPE_NULL, MPI_SUM));
}

TEST_F(Opened, EverySizeIsTheMpis) {
  // Whatever a handle maps to has the size and extent that the MPI reports.
  for (const MPI_Datatype datatype :
       {MPI_INTEGER, MPI_LOGICAL, MPI_REAL, MPI_DOUBLE_PRECISION, MPI_COMPLEX, MPI_DOUBLE_COMPLEX,
        MPI_LONG_DOUBLE, MPI_LONG_DOUBLE_INT, MPI_SHORT_INT, MPI_LONG_INT, MPI_OFFSET, MPI_COUNT}) {
    Reducible found = {};
    if (datatype == MPI_DATATYPE_NULL || !handles.dtypes.find(datatype, found)) continue;
    int size = 0;
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    below.Type_size(datatype, &size);
    below.Type_get_extent(datatype, &lower, &extent);
    EXPECT_EQ(static_cast<uint32_t>(size), info(found.dtype).bytes);
    EXPECT_EQ(static_cast<uint32_t>(extent), info(found.dtype).extent);
  }
}

}  // namespace
}  // namespace tutti::mpi
