#ifndef PAGEMILL_SYCL_OPS_SCATTER_ROWS_SCATTER_ROWS_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_SCATTER_ROWS_SCATTER_ROWS_ACT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/scatter_rows/scatter_rows_params.h"

// A work-item for each element of x.
PAGEMILL_KERNEL void scatter_rows_kernel(ScatterRowsParams p) {
  const int64_t row = GlobalId() / p.width, i = GlobalId() % p.width;
  if (row >= p.count) return;
  const int64_t to = p.rows == nullptr ? row : p.rows[row];
  p.z.Row<Act>(to)[i] = p.x.Row<const Act>(row)[i];
}

#endif  // PAGEMILL_SYCL_OPS_SCATTER_ROWS_SCATTER_ROWS_ACT_KERNEL_H_
