#ifndef PAGEMILL_SYCL_OPS_CONCAT_CONCAT_PARAMS_H_
#define PAGEMILL_SYCL_OPS_CONCAT_CONCAT_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct ConcatParams {
  Rows x;  // rows of `width` elements
  Rows y;  // the same elements begin at `first`
  int64_t rows = 0, width = 0, first = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_CONCAT_CONCAT_PARAMS_H_
