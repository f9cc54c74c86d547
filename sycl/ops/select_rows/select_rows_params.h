#ifndef PAGEMILL_SYCL_OPS_SELECT_ROWS_SELECT_ROWS_PARAMS_H_
#define PAGEMILL_SYCL_OPS_SELECT_ROWS_SELECT_ROWS_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct SelectRowsParams {
  Rows x;                         // [x_rows, width]
  const int32_t* rows = nullptr;  // [y_rows]
  Rows y;                         // [y_rows, count * width]
  int64_t x_rows = 0, y_rows = 0, width = 0, count = 1;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_SELECT_ROWS_SELECT_ROWS_PARAMS_H_
