#include "core/types.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tutti {
namespace {

TEST(Types, EveryNameIsFoundAndIsItsOwn) {
  std::set<std::string> names;
  for (size_t i = 0; i < dtype_count; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    EXPECT_EQ(find_dtype(name(dtype)), dtype);
    EXPECT_TRUE(names.insert(name(dtype)).second) << name(dtype);
  }
  for (size_t i = 0; i < op_count; ++i) {
    const auto op = static_cast<Op>(i);
    EXPECT_EQ(find_op(name(op)), op);
    EXPECT_TRUE(names.insert(name(op)).second) << name(op);
  }
  for (size_t i = 0; i < coll_count; ++i) {
    const auto coll = static_cast<Coll>(i);
    EXPECT_EQ(find_coll(name(coll)), coll);
    EXPECT_TRUE(names.insert(name(coll)).second) << name(coll);
  }
  EXPECT_FALSE(find_dtype("f33"));
  EXPECT_FALSE(find_op(""));
  EXPECT_FALSE(find_coll("allreduc"));
}

TEST(Types, ExtentsHoldTheDataAndKeepItAligned) {
  for (const DtypeInfo& dtype : dtype_table) {
    EXPECT_GE(dtype.extent, dtype.bytes) << dtype.name;
    EXPECT_EQ(dtype.extent == dtype.bytes, dtype.cls != DtypeClass::pair || dtype.bytes % 8 == 0)
        << dtype.name;
  }
  // As the compiler lays the pairs of MPI out.
  struct DoubleInt {
    double value;
    int index;
  };
  struct LongDoubleInt {
    long double value;
    int index;
  };
  struct ShortInt {
    short value;
    int index;
  };
  EXPECT_EQ(info(Dtype::f64_i32).extent, sizeof(DoubleInt));
  EXPECT_EQ(info(Dtype::f80_i32).extent, sizeof(LongDoubleInt));
  EXPECT_EQ(info(Dtype::i16_i32).extent, sizeof(ShortInt));
  EXPECT_EQ(info(Dtype::f80).extent, sizeof(long double));
}

TEST(Types, OperationsAreValidWhereTheStandardSaysSo) {
  // MPI-4.0 section 6.9.2, one row a class: sum min land band minloc.
  struct Row {
    Dtype dtype;
    bool sum, min, land, band, minloc;
  };
  for (const Row& row : {Row{Dtype::i32, true, true, true, true, false},
                         Row{Dtype::u8, true, true, true, true, false},
                         Row{Dtype::f16, true, true, false, false, false},
                         Row{Dtype::c64, true, false, false, false, false},
                         Row{Dtype::l32, false, false, true, false, false},
                         Row{Dtype::byte, false, false, false, true, false},
                         Row{Dtype::f64_i32, false, false, false, false, true}}) {
    EXPECT_EQ(op_valid(Op::sum, row.dtype), row.sum) << name(row.dtype);
    EXPECT_EQ(op_valid(Op::prod, row.dtype), row.sum) << name(row.dtype);
    EXPECT_EQ(op_valid(Op::min, row.dtype), row.min) << name(row.dtype);
    EXPECT_EQ(op_valid(Op::max, row.dtype), row.min) << name(row.dtype);
    EXPECT_EQ(op_valid(Op::land, row.dtype), row.land) << name(row.dtype);
    EXPECT_EQ(op_valid(Op::lxor, row.dtype), row.land) << name(row.dtype);
    EXPECT_EQ(op_valid(Op::band, row.dtype), row.band) << name(row.dtype);
    EXPECT_EQ(op_valid(Op::minloc, row.dtype), row.minloc) << name(row.dtype);
    EXPECT_FALSE(op_valid(Op::user, row.dtype));
  }
}

}  // namespace
}  // namespace tutti
