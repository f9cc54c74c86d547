#ifndef PAGEMILL_SYCL_OPS_MATRIX_WKV_MATRIX_WKV_PARAMS_H_
#define PAGEMILL_SYCL_OPS_MATRIX_WKV_MATRIX_WKV_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

// Operands that a call does not have are null.
struct MatrixWkvParams {
  Rows receptance, decay, key, rate;    // rows of heads * keys elements
  Rows value, y, own;                   // rows of heads * values elements
  const float* shared_decay = nullptr;  // [heads, keys], in place of `decay`
  const float* bonus = nullptr;         // [heads, keys]; so have `removal` and `boost`
  const float* removal = nullptr;
  const float* boost = nullptr;
  Rows states;  // pages of f32 [heads, keys, values]
  StepTokens batch{};
  int32_t heads = 0, keys = 0, values = 0;
  float decay_scale = 0;    // of sigmoid(w), if keys are removed
  float least_squares = 0;  // of the norm of a removed key
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_MATRIX_WKV_MATRIX_WKV_PARAMS_H_
