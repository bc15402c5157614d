// Widening: 16-bit floats to fp32 and back, and sums and products there: what the executor does in
// the wide places of a schedule on host memory.
#pragma once

#include "core/types.hpp"
#include "engine/executor.hpp"

namespace tutti {

float to_f32(Dtype dtype, uint16_t narrow);
// To nearest, ties to even.
uint16_t from_f32(Dtype dtype, float wide);

// For the operations and types of gains_by_fp32(). Its memory is for the caller to set.
Widening wide_arithmetic(Op op, Dtype dtype);

}  // namespace tutti
