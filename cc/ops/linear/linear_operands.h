// File: cc/ops/linear/linear_operands.h
// An OpCall of `linear` as raw pointers and sizes, and the strip of it that one kernel call computes.
// Plain data without functions, so that files compiled for any instruction set may include it.
#ifndef PAGEMILL_CC_OPS_LINEAR_LINEAR_OPERANDS_H_
#define PAGEMILL_CC_OPS_LINEAR_LINEAR_OPERANDS_H_

#include <cstdint>

namespace pagemill::ops::linear {

struct Operands {
  const uint8_t* weights;      // [m, k] in the stored dtype
  int64_t weight_stride;       // bytes
  const uint8_t* x;            // [n, k] f32
  int64_t x_stride;            // bytes
  uint8_t* y;                  // [n, m] f32
  int64_t y_stride;            // bytes
  const uint8_t* bias;         // [m] f32, or null
  int64_t n;                   // rows of x and y
  int64_t m;                   // rows of W
  int64_t k;
};

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_LINEAR_OPERANDS_H_
