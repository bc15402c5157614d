#include "shm/reduce.hpp"

#include <atomic>

#include "shm/reduce_table.hpp"

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace tutti::shm {

struct ReducerTable {
  Reducer at[op_count][dtype_count];
};

namespace {

constexpr size_t variant_count = sizeof(variants) / sizeof(variants[0]);

// All variants' tables, filled once.
struct Tables {
  ReducerTable of[variant_count];

  Tables() {
    for (Variant variant : variants) {
      ReducerTable& table = of[static_cast<size_t>(variant)];
      add_scalar(table);
      add_generic(table);
#ifdef __x86_64__
      if (variant == Variant::avx2) add_avx2(table);
      if (variant == Variant::avx512) add_avx512(table);
#endif
    }
  }
};

#ifdef __x86_64__
bool has_f16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

Variant best_variant() {
  for (Variant variant : {Variant::avx512, Variant::avx2})
    if (supported(variant)) return variant;
  return Variant::generic;
}

// Chosen at the first use: no work when the library is loaded into a program without MPI.
struct Active {
  Tables tables;
  std::atomic<Variant> variant{best_variant()};
};

Active& active() {
  static Active instance;
  return instance;
}

}  // namespace

void set_reducer(ReducerTable& table, Op op, Dtype dtype, Reducer::Two two, Reducer::Many many,
                 uint32_t units) {
  table.at[static_cast<size_t>(op)][static_cast<size_t>(dtype)] = Reducer(two, many, units);
}

const char* name(Variant variant) {
  constexpr const char* names[variant_count] = {"generic", "avx2", "avx512"};
  return names[static_cast<size_t>(variant)];
}

bool supported(Variant variant) {
  switch (variant) {
    case Variant::generic:
      return true;
#ifdef __x86_64__
    // These also ask whether the operating system saves the wide registers.
    case Variant::avx2:
      return __builtin_cpu_supports("avx2") && has_f16c();
    case Variant::avx512:
      return supported(Variant::avx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
#endif
    default:
      return false;
  }
}

Variant active_variant() {
  return active().variant.load(std::memory_order_relaxed);
}

void force_variant(Variant variant) {
  if (supported(variant)) active().variant.store(variant, std::memory_order_relaxed);
}

const Reducer* find_reducer(Op op, Dtype dtype) {
  if (!op_valid(op, dtype)) return nullptr;
  Active& now = active();
  const Variant variant = now.variant.load(std::memory_order_relaxed);
  const Reducer& found = now.tables.of[static_cast<size_t>(variant)]
                             .at[static_cast<size_t>(op)][static_cast<size_t>(dtype)];
  return found.valid() ? &found : nullptr;
}

bool reducible(Op op, Dtype dtype) {
  return find_reducer(op, dtype) != nullptr;
}

void reduce2(Op op, Dtype dtype, void* to, const void* lower, const void* higher, size_t count) {
  find_reducer(op, dtype)->two(to, lower, higher, count);
}

void reduce_n(Op op, Dtype dtype, void* to, const void* const* parts, int nparts, size_t count) {
  find_reducer(op, dtype)->many(to, parts, nparts, count);
}

}  // namespace tutti::shm
