#ifndef PAGEMILL_SYCL_OPS_ADD_RMS_NORM_ADD_RMS_NORM_PARAMS_H_
#define PAGEMILL_SYCL_OPS_ADD_RMS_NORM_ADD_RMS_NORM_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct AddRmsNormParams {
  Rows x, residual, y, sum;  // rows of `size` elements
  const float* w = nullptr;  // [size]
  int64_t size = 0;
  float eps = 0;
  float weight_offset = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_ADD_RMS_NORM_ADD_RMS_NORM_PARAMS_H_
