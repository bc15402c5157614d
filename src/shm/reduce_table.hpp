// Between reduce.cc and the files of the CPU variants: who fills which table.
#pragma once

#include "shm/reduce.hpp"

namespace tutti::shm {

struct ReducerTable;

// Not inline: files of a variant may not emit code that others could be linked to.
void set_reducer(ReducerTable& table, Op op, Dtype dtype, Reducer::Two two, Reducer::Many many,
                 uint32_t units);

// Each adds the pairs that it has code for. scalar: what vector instructions do not help (f80, c80,
// pairs), the same in all variants.
void add_scalar(ReducerTable& table);
void add_generic(ReducerTable& table);
#ifdef __x86_64__
void add_avx2(ReducerTable& table);
void add_avx512(ReducerTable& table);
#endif

}  // namespace tutti::shm
