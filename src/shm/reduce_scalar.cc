// f80, its complex and the value-index pairs, one element at a time.
//
// MPI lays the pairs out as C does: {double, int} has its index behind 8 bytes and 4 bytes of
// padding at the end, {short, int} 2 bytes in the middle. Only the members are read and written.
#include <cfloat>
#include <cmath>
#include <cstring>

#include "shm/reduce_table.hpp"

namespace tutti::shm {
namespace {

// Bytes of data in a T: what lies behind them is padding.
template <class T>
constexpr size_t data_bytes = sizeof(T);
#if LDBL_MANT_DIG == 64
template <>
constexpr size_t data_bytes<long double> = 10;
#endif

template <class T>
T get(const char* from) {
  T value{};
  std::memcpy(&value, from, data_bytes<T>);
  return value;
}

template <class T>
void put(char* to, const T& value) {
  std::memcpy(to, &value, data_bytes<T>);
}

// An item has a Value, the extent of an element, load and store.
template <class T>
struct Single {
  using Value = T;
  static constexpr size_t extent = sizeof(T);
  static Value load(const char* from) { return get<T>(from); }
  static void store(char* to, const Value& value) { put(to, value); }
};

template <class V, class I>
struct Couple {
  struct Value {
    V value;
    I index;
  };
  static constexpr size_t extent = sizeof(Value);
  static constexpr size_t index_at = offsetof(Value, index);
  static Value load(const char* from) { return {get<V>(from), get<I>(from + index_at)}; }
  static void store(char* to, const Value& value) {
    put(to, value.value);
    put(to + index_at, value.index);
  }
};

template <class Item, class Operation>
void two(void* to, const void* lower, const void* higher, size_t count) {
  char* out = static_cast<char*>(to);
  const char* a = static_cast<const char*>(lower);
  const char* b = static_cast<const char*>(higher);
  for (size_t at = 0; at < count * Item::extent; at += Item::extent)
    Item::store(out + at, Operation::apply(Item::load(a + at), Item::load(b + at)));
}

template <class Item, class Operation>
void many(void* to, const void* const* parts, int nparts, size_t count) {
  char* out = static_cast<char*>(to);
  for (size_t at = 0; at < count * Item::extent; at += Item::extent) {
    auto sum = Item::load(static_cast<const char*>(parts[0]) + at);
    for (int k = 1; k < nparts; ++k)
      sum = Operation::apply(sum, Item::load(static_cast<const char*>(parts[k]) + at));
    Item::store(out + at, sum);
  }
}

template <class Item, class Operation>
void set(ReducerTable& table, Op op, Dtype dtype, uint32_t units = 1) {
  set_reducer(table, op, dtype, two<Item, Operation>, many<Item, Operation>, units);
}

template <class T>
constexpr bool is_nan(T value) {
  return value != value;
}

template <bool Max>
struct Loc {
  template <class Pair>
  static Pair apply(const Pair& a, const Pair& b) {
    const bool a_nan = is_nan(a.value);
    const bool b_nan = is_nan(b.value);
    if (a_nan != b_nan) return a_nan ? a : b;
    if (!a_nan && a.value != b.value) return (Max ? a.value > b.value : a.value < b.value) ? a : b;
    return b.index < a.index ? b : a;
  }
};

template <class V, class I>
void add_pair(ReducerTable& table, Dtype dtype) {
  set<Couple<V, I>, Loc<false>>(table, Op::minloc, dtype);
  set<Couple<V, I>, Loc<true>>(table, Op::maxloc, dtype);
}

#if LDBL_MANT_DIG == 64
struct Sum {
  static long double apply(long double a, long double b) { return a + b; }
};
struct Prod {
  static long double apply(long double a, long double b) { return a * b; }
};
template <bool Max>
struct Extreme {
  static long double apply(long double a, long double b) {
    if (is_nan(a)) return a;
    if (is_nan(b)) return b;
    if (a == b) return std::signbit(a) == Max ? b : a;
    return (Max ? a > b : a < b) ? a : b;
  }
};

struct Complex {
  long double real;
  long double imag;
};
struct ComplexItem {
  using Value = Complex;
  static constexpr size_t extent = sizeof(Complex);
  static Value load(const char* from) {
    return {get<long double>(from), get<long double>(from + sizeof(long double))};
  }
  static void store(char* to, const Value& value) {
    put(to, value.real);
    put(to + sizeof(long double), value.imag);
  }
};
struct ComplexProd {
  static Complex apply(const Complex& a, const Complex& b) {
    return {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real};
  }
};

void add_f80(ReducerTable& table) {
  using Item = Single<long double>;
  set<Item, Sum>(table, Op::sum, Dtype::f80);
  set<Item, Prod>(table, Op::prod, Dtype::f80);
  set<Item, Extreme<false>>(table, Op::min, Dtype::f80);
  set<Item, Extreme<true>>(table, Op::max, Dtype::f80);
  set<Item, Sum>(table, Op::sum, Dtype::c80, 2);
  set<ComplexItem, ComplexProd>(table, Op::prod, Dtype::c80);
  add_pair<long double, int32_t>(table, Dtype::f80_i32);
}
#else
void add_f80(ReducerTable&) {}
#endif

}  // namespace

void add_scalar(ReducerTable& table) {
  add_f80(table);
  add_pair<float, int32_t>(table, Dtype::f32_i32);
  add_pair<double, int32_t>(table, Dtype::f64_i32);
  add_pair<int16_t, int32_t>(table, Dtype::i16_i32);
  add_pair<int32_t, int32_t>(table, Dtype::i32_i32);
  add_pair<int64_t, int32_t>(table, Dtype::i64_i32);
  add_pair<float, float>(table, Dtype::f32_f32);
  add_pair<double, double>(table, Dtype::f64_f64);
}

}  // namespace tutti::shm
