#ifndef PAGEMILL_SYCL_OPS_SCATTER_ROWS_SCATTER_ROWS_PARAMS_H_
#define PAGEMILL_SYCL_OPS_SCATTER_ROWS_SCATTER_ROWS_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct ScatterRowsParams {
  Rows x, z;                      // rows of `width` elements
  const int32_t* rows = nullptr;  // [count] rows of z; null: row i of x goes to row i of z
  int64_t count = 0, width = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_SCATTER_ROWS_SCATTER_ROWS_PARAMS_H_
