#ifndef PAGEMILL_SYCL_OPS_SPARSE_RELU_SPARSE_RELU_PARAMS_H_
#define PAGEMILL_SYCL_OPS_SPARSE_RELU_SPARSE_RELU_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct SparseReluParams {
  Rows x, y;  // rows of `width` elements
  int64_t width = 0;
  float deviations = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_SPARSE_RELU_SPARSE_RELU_PARAMS_H_
