#ifndef PAGEMILL_SYCL_OPS_LINEAR_LINEAR_PARAMS_H_
#define PAGEMILL_SYCL_OPS_LINEAR_LINEAR_PARAMS_H_

#include "sycl/ops/operands.h"
#include "sycl/ops/weight_matrices.h"

namespace pagemill::sycl {

// Rows of x that a sub-group multiplies with the row of weights that it reads.
inline constexpr int32_t kLinearRows = 8;
inline constexpr int32_t kLinearGroupSize = 128;

struct LinearParams {
  Rows x;                       // [n, k]
  WeightMatrices w;             // [m, k]
  Rows y;                       // [n, m]
  const float* bias = nullptr;  // [m], or null
  bool f32_result = false;      // otherwise y is of the type of x
  int64_t n = 0, m = 0, k = 0;
};

struct DecodeWeightsParams {
  WeightMatrices w;
  void* to = nullptr;  // rows of `columns` activations: those of w from `first_row` on
  int64_t first_row = 0, columns = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_LINEAR_LINEAR_PARAMS_H_
