#ifndef PAGEMILL_SYCL_OPS_ARGMAX_ARGMAX_PARAMS_H_
#define PAGEMILL_SYCL_OPS_ARGMAX_ARGMAX_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct ArgmaxParams {
  Rows x;                      // rows of `width` f32
  int32_t* columns = nullptr;  // [rows]
  float* values = nullptr;     // [rows]
  int32_t width = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_ARGMAX_ARGMAX_PARAMS_H_
