#ifndef PAGEMILL_SYCL_OPS_LAYER_NORM_LAYER_NORM_PARAMS_H_
#define PAGEMILL_SYCL_OPS_LAYER_NORM_LAYER_NORM_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct LayerNormParams {
  Rows x, y;                 // rows of groups * size elements
  const float* w = nullptr;  // [size], or [groups * size]; so has b
  const float* b = nullptr;
  int64_t groups = 1;           // of a row, each normalized on its own
  int64_t size = 0;             // elements of a group
  int64_t parameter_step = 0;   // from the weights of a group to those of the next
  float eps = 0;
  float weight_offset = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_LAYER_NORM_LAYER_NORM_PARAMS_H_
