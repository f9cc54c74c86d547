#ifndef PAGEMILL_SYCL_OPS_RMS_NORM_RMS_NORM_PARAMS_H_
#define PAGEMILL_SYCL_OPS_RMS_NORM_RMS_NORM_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct RmsNormParams {
  Rows x, y;                   // rows of groups * size elements
  const float* w = nullptr;    // [size], or [groups * size]
  int64_t groups = 1;          // of a row, each normalized on its own
  int64_t size = 0;            // elements of a group
  int64_t weight_step = 0;     // from the weights of a group to those of the next
  float eps = 0;
  float weight_offset = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_RMS_NORM_RMS_NORM_PARAMS_H_
