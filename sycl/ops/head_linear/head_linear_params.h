#ifndef PAGEMILL_SYCL_OPS_HEAD_LINEAR_HEAD_LINEAR_PARAMS_H_
#define PAGEMILL_SYCL_OPS_HEAD_LINEAR_HEAD_LINEAR_PARAMS_H_

#include "sycl/ops/operands.h"
#include "sycl/ops/weight_matrices.h"

namespace pagemill::sycl {

struct HeadLinearParams {
  Rows x;                   // [n, heads, k]
  WeightMatrices w;         // [heads, m, k], or [heads, k, m] if transposed
  Rows y;                   // [n, heads, m]
  bool f32_result = false;  // otherwise y is of the type of x
  int64_t n = 0, heads = 0, m = 0, k = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_HEAD_LINEAR_HEAD_LINEAR_PARAMS_H_
