#ifndef PAGEMILL_SYCL_OPS_SPLIT_SPLIT_PARAMS_H_
#define PAGEMILL_SYCL_OPS_SPLIT_SPLIT_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct SplitParams {
  Rows x;  // rows of pieces of `piece` elements
  Rows y;  // rows of as many pieces of `part` elements
  int64_t rows = 0, width = 0;  // of y, in elements
  int64_t piece = 0, part = 0;
  int64_t first = 0;  // element of each piece of x
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_SPLIT_SPLIT_PARAMS_H_
