#include "shm/reduce.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/text.hpp"

namespace tutti::shm {
namespace {

// ---- An independent reference: one element at a time, by the rules of reduce.hpp. ----

// A number of any real type, exactly. Integers beyond 64 bits do not occur.
long double decode_small(uint16_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const long double sign = (bits >> 15) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction != 0 ? std::copysign(std::numeric_limits<long double>::quiet_NaN(), sign)
                         : sign * std::numeric_limits<long double>::infinity();
  if (exponent == 0) return sign * std::ldexp((long double)fraction, 1 - bias - fraction_bits);
  return sign *
         std::ldexp((long double)(fraction | 1 << fraction_bits), exponent - bias - fraction_bits);
}

// Nearest value of the small format, ties to even, from the definition. NaN gives the quiet NaN.
uint16_t encode_small(float value, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const uint16_t infinity = ((1 << exponent_bits) - 1) << fraction_bits;
  if (std::isnan(value)) return sign | infinity | 1 << (fraction_bits - 1);
  if (std::isinf(value)) return sign | infinity;
  const long double magnitude = std::fabs((long double)value);
  int exponent = magnitude == 0 ? 1 - bias : std::max(std::ilogb(magnitude), 1 - bias);
  const long double places = std::ldexp(magnitude, fraction_bits - exponent);
  long whole = static_cast<long>(std::floor(places));
  const long double rest = places - std::floor(places);
  if (rest > 0.5L || (rest == 0.5L && whole % 2 != 0)) ++whole;
  // A carry into the next binade comes out right by itself: the fields are adjacent.
  const long biased = whole >> fraction_bits == 0 ? 0 : exponent + bias;
  const long bits = biased == 0 ? whole : ((biased - 1) << fraction_bits) + whole;
  return sign | static_cast<uint16_t>(std::min<long>(bits, infinity));
}

template <class T>
T get(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void put(char* to, T value) {
  std::memcpy(to, &value, std::is_same_v<T, long double> ? 10 : sizeof value);
}

template <class T>
T real_extreme(Op op, T a, T b) {
  if (std::isnan(a)) return a;
  if (std::isnan(b)) return b;
  const bool a_less = a < b || (a == b && std::signbit(a) && !std::signbit(b));
  return (op == Op::min) == a_less ? a : b;
}

template <class T>
T real_apply(Op op, T a, T b) {
  switch (op) {
    case Op::sum:
      return a + b;
    case Op::prod:
      return a * b;
    default:
      return real_extreme(op, a, b);
  }
}

template <class T>
void fold_real(Op op, char* to, const std::vector<const char*>& parts) {
  volatile T sum = get<T>(parts[0]);
  for (size_t k = 1; k < parts.size(); ++k) sum = real_apply<T>(op, sum, get<T>(parts[k]));
  put<T>(to, sum);
}

void fold_small(Op op, int exponent_bits, char* to, const std::vector<const char*>& parts) {
  const int fraction_bits = 15 - exponent_bits;
  const auto decode = [&](const char* from) {
    return static_cast<float>(decode_small(get<uint16_t>(from), exponent_bits, fraction_bits));
  };
  if (op == Op::min || op == Op::max) {
    const char* best = parts[0];
    for (const char* part : parts) {
      const float a = decode(best);
      const float b = decode(part);
      if (std::isnan(a)) break;
      const float c = real_extreme(op, a, b);
      if (std::isnan(b) || (c == b && std::signbit(c) == std::signbit(b))) best = part;
    }
    std::memcpy(to, best, 2);
    return;
  }
  volatile float sum = decode(parts[0]);
  for (size_t k = 1; k < parts.size(); ++k) sum = real_apply<float>(op, sum, decode(parts[k]));
  put<uint16_t>(to, encode_small(sum, exponent_bits, fraction_bits));
}

template <class T>
void fold_complex(Op op, char* to, const std::vector<const char*>& parts) {
  volatile T re = get<T>(parts[0]);
  volatile T im = get<T>(parts[0] + sizeof(T));
  for (size_t k = 1; k < parts.size(); ++k) {
    const T c = get<T>(parts[k]);
    const T d = get<T>(parts[k] + sizeof(T));
    const T a = re;
    const T b = im;
    if (op == Op::sum) {
      re = a + c;
      im = b + d;
    } else {
      volatile T ac = a * c, bd = b * d, ad = a * d, bc = b * c;
      re = ac - bd;
      im = ad + bc;
    }
  }
  put<T>(to, re);
  put<T>(to + sizeof(T), im);
}

template <class T>
void fold_integer(Op op, char* to, const std::vector<const char*>& parts) {
  __int128 sum = get<T>(parts[0]);
  for (size_t k = 1; k < parts.size(); ++k) {
    const __int128 v = get<T>(parts[k]);
    switch (op) {
      case Op::sum:
        sum = sum + v;
        break;
      case Op::prod:
        sum = static_cast<__int128>(static_cast<unsigned __int128>(sum) *
                                    static_cast<unsigned __int128>(v));
        break;
      case Op::min:
        sum = std::min(sum, v);
        break;
      case Op::max:
        sum = std::max(sum, v);
        break;
      case Op::land:
        sum = sum != 0 && v != 0;
        break;
      case Op::lor:
        sum = sum != 0 || v != 0;
        break;
      case Op::lxor:
        sum = (sum != 0) != (v != 0);
        break;
      case Op::band:
        sum = sum & v;
        break;
      case Op::bor:
        sum = sum | v;
        break;
      default:
        sum = sum ^ v;
        break;
    }
    sum = static_cast<T>(sum);
  }
  put<T>(to, static_cast<T>(sum));
}

template <class V, class I>
void fold_pair(Op op, char* to, const std::vector<const char*>& parts) {
  struct Pair {
    V value;
    I index;
  };
  V value = get<V>(parts[0]);
  I index = get<I>(parts[0] + offsetof(Pair, index));
  for (size_t k = 1; k < parts.size(); ++k) {
    const V v = get<V>(parts[k]);
    const I i = get<I>(parts[k] + offsetof(Pair, index));
    const bool old_nan = value != value;
    const bool new_nan = v != v;
    const bool tie = (old_nan && new_nan) || value == v;
    const bool better = new_nan ? !old_nan : !old_nan && (op == Op::minloc ? v < value : v > value);
    if (better || (tie && i < index)) {
      value = v;
      index = i;
    }
  }
  put<V>(to, value);
  put<I>(to + offsetof(Pair, index), index);
}

// One element: to = op over parts. Padding of `to` stays.
void fold(Op op, Dtype dtype, char* to, const std::vector<const char*>& parts) {
  switch (dtype) {
    case Dtype::i8:
      return fold_integer<int8_t>(op, to, parts);
    case Dtype::i16:
      return fold_integer<int16_t>(op, to, parts);
    case Dtype::i32:
      return fold_integer<int32_t>(op, to, parts);
    case Dtype::i64:
      return fold_integer<int64_t>(op, to, parts);
    case Dtype::byte:
    case Dtype::l8:
    case Dtype::u8:
      return fold_integer<uint8_t>(op, to, parts);
    case Dtype::l16:
    case Dtype::u16:
      return fold_integer<uint16_t>(op, to, parts);
    case Dtype::l32:
    case Dtype::u32:
      return fold_integer<uint32_t>(op, to, parts);
    case Dtype::l64:
    case Dtype::u64:
      return fold_integer<uint64_t>(op, to, parts);
    case Dtype::f16:
      return fold_small(op, 5, to, parts);
    case Dtype::bf16:
      return fold_small(op, 8, to, parts);
    case Dtype::f32:
      return fold_real<float>(op, to, parts);
    case Dtype::f64:
      return fold_real<double>(op, to, parts);
    case Dtype::f80:
      return fold_real<long double>(op, to, parts);
    case Dtype::c32:
      return fold_complex<float>(op, to, parts);
    case Dtype::c64:
      return fold_complex<double>(op, to, parts);
    case Dtype::c80:
      return fold_complex<long double>(op, to, parts);
    case Dtype::f32_i32:
      return fold_pair<float, int32_t>(op, to, parts);
    case Dtype::f64_i32:
      return fold_pair<double, int32_t>(op, to, parts);
    case Dtype::f80_i32:
      return fold_pair<long double, int32_t>(op, to, parts);
    case Dtype::i16_i32:
      return fold_pair<int16_t, int32_t>(op, to, parts);
    case Dtype::i32_i32:
      return fold_pair<int32_t, int32_t>(op, to, parts);
    case Dtype::i64_i32:
      return fold_pair<int64_t, int32_t>(op, to, parts);
    case Dtype::f32_f32:
      return fold_pair<float, float>(op, to, parts);
    case Dtype::f64_f64:
      return fold_pair<double, double>(op, to, parts);
  }
}

// ---- Inputs. ----

using Random = std::mt19937_64;

// Where the values of an element stand, and what kind each is.
struct Field {
  size_t at;
  Dtype dtype;
};
std::vector<Field> fields(Dtype dtype) {
  switch (dtype) {
    case Dtype::c32:
      return {{0, Dtype::f32}, {4, Dtype::f32}};
    case Dtype::c64:
      return {{0, Dtype::f64}, {8, Dtype::f64}};
    case Dtype::c80:
      return {{0, Dtype::f80}, {16, Dtype::f80}};
    case Dtype::f32_i32:
      return {{0, Dtype::f32}, {4, Dtype::i32}};
    case Dtype::f64_i32:
      return {{0, Dtype::f64}, {8, Dtype::i32}};
    case Dtype::f80_i32:
      return {{0, Dtype::f80}, {16, Dtype::i32}};
    case Dtype::i16_i32:
      return {{0, Dtype::i16}, {4, Dtype::i32}};
    case Dtype::i32_i32:
      return {{0, Dtype::i32}, {4, Dtype::i32}};
    case Dtype::i64_i32:
      return {{0, Dtype::i64}, {8, Dtype::i32}};
    case Dtype::f32_f32:
      return {{0, Dtype::f32}, {4, Dtype::f32}};
    case Dtype::f64_f64:
      return {{0, Dtype::f64}, {8, Dtype::f64}};
    default:
      return {{0, dtype}};
  }
}

template <class T>
T special(Random& random) {
  using Limits = std::numeric_limits<T>;
  const T values[] = {T{0},
                      -T{0},
                      T{1},
                      -T{1},
                      Limits::max(),
                      Limits::lowest(),
                      Limits::min(),
                      Limits::denorm_min(),
                      Limits::infinity(),
                      -Limits::infinity(),
                      Limits::quiet_NaN(),
                      -Limits::quiet_NaN()};
  return values[random() % std::size(values)];
}

// Small numbers with ties, wild bits, and special values, a third each.
void fill_value(Random& random, Dtype dtype, char* to) {
  const uint64_t style = random() % 3;
  const int small = static_cast<int>(random() % 7) - 3;
  const uint64_t wild = random();
  const size_t bytes = info(dtype).bytes;
  switch (dtype) {
    case Dtype::f32:
      if (style == 1) return put<float>(to, special<float>(random));
      return style == 0 ? put<float>(to, small * 0.75f) : put<uint32_t>(to, wild);
    case Dtype::f64:
      if (style == 1) return put<double>(to, special<double>(random));
      return style == 0 ? put<double>(to, small * 0.75) : put<uint64_t>(to, wild);
    case Dtype::f80:
      if (style == 1) return put<long double>(to, special<long double>(random));
      return put<long double>(
          to, style == 0 ? small * 0.75L : std::ldexp((long double)wild, random() % 64));
    case Dtype::f16:
    case Dtype::bf16: {
      const int exponent_bits = dtype == Dtype::f16 ? 5 : 8;
      if (style != 0) return put<uint16_t>(to, static_cast<uint16_t>(wild));
      return put<uint16_t>(to, encode_small(small * 0.75f, exponent_bits, 15 - exponent_bits));
    }
    default: {
      const int64_t value = style == 0 ? small : style == 1 ? static_cast<int64_t>(wild) : -1;
      std::memcpy(to, &value, bytes);
    }
  }
}

// Elements in memory with canaries round them, at any alignment.
class Buffer {
 public:
  Buffer(Dtype dtype, size_t count, size_t misalignment)
      : dtype_(dtype),
        begin_(guard + misalignment),
        bytes_(count * info(dtype).extent),
        memory_(begin_ + bytes_ + guard, canary) {}
  char* data() { return reinterpret_cast<char*>(memory_.data()) + begin_; }
  const char* data() const { return reinterpret_cast<const char*>(memory_.data()) + begin_; }
  size_t bytes() const { return bytes_; }
  void fill(Random& random) {
    for (size_t at = 0; at < bytes_; at += info(dtype_).extent)
      for (const Field& field : fields(dtype_))
        fill_value(random, field.dtype, data() + at + field.at);
  }
  bool canaries_hold() const {
    const auto intact = [](uint8_t byte) { return byte == canary; };
    return std::all_of(memory_.begin(), memory_.begin() + begin_, intact) &&
           std::all_of(memory_.begin() + begin_ + bytes_, memory_.end(), intact);
  }
  friend bool operator==(const Buffer& a, const Buffer& b) {
    return a.bytes_ == b.bytes_ && std::memcmp(a.data(), b.data(), a.bytes_) == 0;
  }

 private:
  static constexpr uint8_t canary = 0xa5;
  static constexpr size_t guard = 128;
  Dtype dtype_;
  size_t begin_;
  size_t bytes_;
  std::vector<uint8_t> memory_;
};

template <class T>
bool same_real(const char* a, const char* b) {
  const T x = get<T>(a);
  const T y = get<T>(b);
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  return x == y && std::signbit(x) == std::signbit(y);
}

// Equal bit for bit, but for sums and products that are NaN: which NaN is free against the
// reference (not between variants).
bool same_value(Op op, Dtype dtype, const char* a, const char* b) {
  if (op != Op::sum && op != Op::prod) return std::memcmp(a, b, info(dtype).extent) == 0;
  for (const Field& field : fields(dtype)) {
    const char* x = a + field.at;
    const char* y = b + field.at;
    bool same = false;
    switch (field.dtype) {
      case Dtype::f32:
        same = same_real<float>(x, y);
        break;
      case Dtype::f64:
        same = same_real<double>(x, y);
        break;
      case Dtype::f80:
        same = same_real<long double>(x, y);
        break;
      case Dtype::f16:
      case Dtype::bf16: {
        const uint16_t infinity = field.dtype == Dtype::f16 ? 0x7c00 : 0x7f80;
        const bool x_nan = (get<uint16_t>(x) & 0x7fff) > infinity;
        const bool y_nan = (get<uint16_t>(y) & 0x7fff) > infinity;
        same = x_nan || y_nan ? x_nan && y_nan : get<uint16_t>(x) == get<uint16_t>(y);
        break;
      }
      default:
        same = std::memcmp(x, y, info(field.dtype).bytes) == 0;
    }
    if (!same) return false;
  }
  return true;
}

struct Case {
  Op op;
  Dtype dtype;
};
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (size_t o = 0; o < op_count; ++o)
    for (size_t d = 0; d < dtype_count; ++d)
      if (op_valid(static_cast<Op>(o), static_cast<Dtype>(d)))
        cases.push_back({static_cast<Op>(o), static_cast<Dtype>(d)});
  return cases;
}

constexpr size_t counts[] = {0,  1,  2,  3,  4,  5,   7,   8,   9,   15,  16,   17,   31,
                             32, 33, 63, 64, 65, 100, 127, 129, 255, 257, 1023, 1025, 2100};
constexpr int part_counts[] = {1, 2, 3, 5, 8, 9, 16, 17, 33};

class Reduce : public ::testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    if (!supported(GetParam())) GTEST_SKIP() << "this CPU has no " << name(GetParam());
    before_ = active_variant();
    force_variant(GetParam());
    ASSERT_EQ(active_variant(), GetParam());
    seed_ = std::random_device()();
    random_.seed(seed_);
    RecordProperty("seed", std::to_string(seed_));
  }
  void TearDown() override {
    if (supported(GetParam())) force_variant(before_);
  }
  std::string where(const Case& c, size_t count, int nparts) const {
    return text("{} {} of {} elements, {} parts, {}, seed {}", name(c.op), name(c.dtype), count,
                nparts, name(GetParam()), seed_);
  }
  std::vector<Buffer> inputs(Dtype dtype, size_t count, int nparts) {
    std::vector<Buffer> parts;
    for (int k = 0; k < nparts; ++k) {
      parts.emplace_back(dtype, count, random_() % 65);
      parts.back().fill(random_);
    }
    return parts;
  }
  // The first element that differs from the reference, or count.
  size_t first_wrong(const Case& c, const std::vector<Buffer>& parts, const Buffer& before,
                     const Buffer& result, size_t count) const {
    const size_t extent = info(c.dtype).extent;
    for (size_t i = 0; i < count; ++i) {
      std::vector<const char*> elements;
      for (const Buffer& part : parts) elements.push_back(part.data() + i * extent);
      char expected[32];
      std::memcpy(expected, before.data() + i * extent, extent);
      fold(c.op, c.dtype, expected, elements);
      if (!same_value(c.op, c.dtype, expected, result.data() + i * extent)) return i;
    }
    return count;
  }

  Random random_;
  uint64_t seed_ = 0;

 private:
  Variant before_ = Variant::generic;
};

std::vector<const void*> pointers(const std::vector<Buffer>& parts) {
  std::vector<const void*> out;
  for (const Buffer& part : parts) out.push_back(part.data());
  return out;
}

TEST_P(Reduce, EveryPairOfEveryCountEqualsTheReference) {
  for (const Case& c : all_cases()) {
    ASSERT_TRUE(reducible(c.op, c.dtype)) << name(c.op) << " " << name(c.dtype);
    for (size_t count : counts) {
      const int nparts = part_counts[1 + random_() % (std::size(part_counts) - 1)];
      const std::vector<Buffer> parts = inputs(c.dtype, count, nparts);
      Buffer to(c.dtype, count, random_() % 65);
      const Buffer before = to;
      reduce_n(c.op, c.dtype, to.data(), pointers(parts).data(), nparts, count);
      const size_t wrong = first_wrong(c, parts, before, to, count);
      ASSERT_EQ(wrong, count) << where(c, count, nparts);
      ASSERT_TRUE(to.canaries_hold()) << where(c, count, nparts);
    }
  }
}

TEST_P(Reduce, TwoEqualsTheReferenceAndMayOverwriteEitherInput) {
  for (const Case& c : all_cases()) {
    for (size_t count : counts) {
      const std::vector<Buffer> parts = inputs(c.dtype, count, 2);
      Buffer to(c.dtype, count, random_() % 65);
      const Buffer before = to;
      reduce2(c.op, c.dtype, to.data(), parts[0].data(), parts[1].data(), count);
      ASSERT_EQ(first_wrong(c, parts, before, to, count), count) << where(c, count, 2);
      ASSERT_TRUE(to.canaries_hold()) << where(c, count, 2);
      for (int in_place = 0; in_place < 2; ++in_place) {
        std::vector<Buffer> mine = parts;
        reduce2(c.op, c.dtype, mine[in_place].data(), mine[0].data(), mine[1].data(), count);
        ASSERT_EQ(first_wrong(c, parts, parts[in_place], mine[in_place], count), count)
            << where(c, count, 2) << ", over part " << in_place;
        ASSERT_TRUE(mine[in_place].canaries_hold()) << where(c, count, 2);
      }
    }
  }
}

TEST_P(Reduce, ManyMayOverwriteAnyPart) {
  for (const Case& c : all_cases()) {
    for (int nparts : part_counts) {
      const size_t count =
          nparts > 8 ? 1 + random_() % 2500 : counts[random_() % std::size(counts)];
      const std::vector<Buffer> parts = inputs(c.dtype, count, nparts);
      const int over = static_cast<int>(random_() % nparts);
      std::vector<Buffer> mine = parts;
      reduce_n(c.op, c.dtype, mine[over].data(), pointers(mine).data(), nparts, count);
      for (int k = 0; k < nparts; ++k) {
        ASSERT_TRUE(mine[k].canaries_hold());
        if (k == over && nparts == 1) {
          ASSERT_TRUE(mine[k] == parts[k]);
        } else if (k == over) {
          ASSERT_EQ(first_wrong(c, parts, parts[k], mine[k], count), count)
              << where(c, count, nparts) << ", over part " << over;
        } else {
          ASSERT_TRUE(mine[k] == parts[k]) << where(c, count, nparts) << " wrote to part " << k;
        }
      }
    }
  }
}

TEST_P(Reduce, OnePartIsCopiedAsItIs) {
  for (const Case& c : all_cases()) {
    const size_t count = 1 + random_() % 300;
    const std::vector<Buffer> parts = inputs(c.dtype, count, 1);
    Buffer to(c.dtype, count, 3);
    const void* part = parts[0].data();
    reduce_n(c.op, c.dtype, to.data(), &part, 1, count);
    // What fill wrote is data; the rest is canary in both.
    ASSERT_TRUE(to == parts[0]) << where(c, count, 1);
  }
}

// Law 5: an element's bits depend neither on the CPU's variant nor on how a call is cut, NaN
// included.
TEST_P(Reduce, BitsEqualGenericHoweverTheWorkIsCut) {
  for (const Case& c : all_cases()) {
    for (int nparts : {2, 7, 12}) {
      const size_t count = 1 + random_() % 1500;
      const size_t extent = info(c.dtype).extent;
      const std::vector<Buffer> parts = inputs(c.dtype, count, nparts);
      Buffer whole(c.dtype, count, 0);
      force_variant(Variant::generic);
      reduce_n(c.op, c.dtype, whole.data(), pointers(parts).data(), nparts, count);
      force_variant(GetParam());
      Buffer cut(c.dtype, count, random_() % 65);
      for (size_t done = 0; done < count;) {
        const size_t now =
            std::min<size_t>(count - done, 1 + random_() % (random_() % 4 ? 9 : 700));
        std::vector<const void*> from;
        for (const Buffer& part : parts) from.push_back(part.data() + done * extent);
        if (nparts == 2)
          reduce2(c.op, c.dtype, cut.data() + done * extent, from[0], from[1], now);
        else
          reduce_n(c.op, c.dtype, cut.data() + done * extent, from.data(), nparts, now);
        done += now;
      }
      ASSERT_TRUE(cut == whole) << where(c, count, nparts);
    }
  }
}

// Every value of the 16-bit formats survives + -0.0, so that conversions both ways are exact and a
// NaN stays one.
TEST_P(Reduce, SixteenBitValuesSurvive) {
  for (Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    const uint16_t infinity = dtype == Dtype::f16 ? 0x7c00 : 0x7f80;
    const uint16_t quiet = dtype == Dtype::f16 ? 0x0200 : 0x0040;
    for (size_t chunk : {1, 2, 4, 8, 16, 64}) {
      std::vector<uint16_t> in(65536), zero(65536, 0x8000), out(65536, 0xdead);
      for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i);
      for (size_t i = 0; i < in.size(); i += chunk)
        reduce2(Op::sum, dtype, &out[i], &in[i], &zero[i], chunk);
      for (size_t i = 0; i < in.size(); ++i) {
        const bool nan = (i & 0x7fff) > infinity;
        ASSERT_EQ(out[i], nan ? i | quiet : i) << name(dtype) << " chunk " << chunk;
      }
    }
  }
}

// 2048 + 1 + 1 + ... in half precision sticks at 2048 unless partial sums are wider.
TEST_P(Reduce, SixteenBitSumsRoundOnce) {
  for (int nparts : {3, 9, 33}) {
    std::vector<uint16_t> one(5, 0x3c00), big(5, 0x6800), out(5, 0xdead);
    std::vector<const void*> parts(nparts, one.data());
    parts[0] = big.data();
    reduce_n(Op::sum, Dtype::f16, out.data(), parts.data(), nparts, 5);
    for (uint16_t bits : out)
      EXPECT_EQ(bits, encode_small(2048.0f + (nparts - 1), 5, 10)) << nparts << " parts";
  }
}

// trap W08: whichever rank holds the NaN.
TEST_P(Reduce, NanWinsFromEveryRank) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  for (Op op : {Op::min, Op::max})
    for (int holder = 0; holder < 4; ++holder) {
      double in[4][3];
      const void* parts[4];
      for (int k = 0; k < 4; ++k) {
        in[k][0] = k;
        in[k][1] = k == holder ? nan : k;
        in[k][2] = -k;
        parts[k] = in[k];
      }
      double out[3] = {7, 7, 7};
      reduce_n(op, Dtype::f64, out, parts, 4, 3);
      EXPECT_EQ(out[0], op == Op::min ? 0 : 3);
      EXPECT_EQ(std::memcmp(&out[1], &nan, 8), 0) << "holder " << holder;
      EXPECT_EQ(out[2], op == Op::min ? -3 : 0);
    }
}

// trap W01: a signed comparison would take all ones for -1.
TEST_P(Reduce, UnsignedExtremes) {
  for (size_t count : {1, 3, 40}) {
    std::vector<uint64_t> ones(count, ~uint64_t{0}), zeros(count, 0), out(count, 7);
    const void* parts[] = {ones.data(), ones.data(), zeros.data(), ones.data()};
    reduce_n(Op::min, Dtype::u64, out.data(), parts, 4, count);
    EXPECT_EQ(out, zeros);
    reduce_n(Op::max, Dtype::u64, out.data(), parts, 4, count);
    EXPECT_EQ(out, ones);
  }
}

// trap W10: 1e16 + 1 - 1e16 + 1 in rank order.
TEST_P(Reduce, SumsInRankOrder) {
  const double values[] = {1e16, 1, -1e16, 1};
  const void* parts[] = {&values[0], &values[1], &values[2], &values[3]};
  double out = 7;
  reduce_n(Op::sum, Dtype::f64, &out, parts, 4, 1);
  EXPECT_EQ(out, ((1e16 + 1) - 1e16) + 1);
}

INSTANTIATE_TEST_SUITE_P(Variants, Reduce, ::testing::ValuesIn(variants),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(ReduceTable, RefusesWhatMpiDoesNotDefine) {
  EXPECT_FALSE(reducible(Op::band, Dtype::f32));
  EXPECT_FALSE(reducible(Op::min, Dtype::c32));
  EXPECT_FALSE(reducible(Op::sum, Dtype::f64_i32));
  EXPECT_FALSE(reducible(Op::user, Dtype::f32));
  EXPECT_EQ(find_reducer(Op::sum, Dtype::byte), nullptr);
}

}  // namespace
}  // namespace tutti::shm
