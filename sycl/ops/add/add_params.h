#ifndef PAGEMILL_SYCL_OPS_ADD_ADD_PARAMS_H_
#define PAGEMILL_SYCL_OPS_ADD_ADD_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct AddParams {
  Rows a, b, y;                       // rows of `width` elements
  const float* shared_row = nullptr;  // instead of b: one row for all rows of a
  int64_t rows = 0, width = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_ADD_ADD_PARAMS_H_
