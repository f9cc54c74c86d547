#ifndef PAGEMILL_SYCL_OPS_SELECT_ROWS_SELECT_ROWS_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_SELECT_ROWS_SELECT_ROWS_ACT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/select_rows/select_rows_params.h"

// A work-item for each element of the result.
PAGEMILL_KERNEL void select_rows_kernel(SelectRowsParams p) {
  const int64_t width = p.count * p.width;
  const int64_t l = GlobalId() / width, i = GlobalId() % width;
  if (l >= p.y_rows) return;
  const int64_t row = p.rows[l] + i / p.width;
  p.y.Row<Act>(l)[i] = row < p.x_rows ? p.x.Row<const Act>(row)[i % p.width] : Act{};
}

#endif  // PAGEMILL_SYCL_OPS_SELECT_ROWS_SELECT_ROWS_ACT_KERNEL_H_
