#ifndef PAGEMILL_SYCL_OPS_SCALE_SCALE_PARAMS_H_
#define PAGEMILL_SYCL_OPS_SCALE_SCALE_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct ScaleParams {
  Rows x, y;     // rows of `width` elements
  Rows factors;  // f32, one for each `group` columns; null: none
  int64_t rows = 0, width = 0, group = 1;
  float by = 1;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_SCALE_SCALE_PARAMS_H_
