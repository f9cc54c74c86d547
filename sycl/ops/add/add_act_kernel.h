#ifndef PAGEMILL_SYCL_OPS_ADD_ADD_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_ADD_ADD_ACT_KERNEL_H_

#include "sycl/ops/add/add_params.h"
#include "sycl/ops/kernel.h"

// A work-item for each element.
PAGEMILL_KERNEL void add_kernel(AddParams p) {
  const int64_t i = GlobalId();
  if (i >= p.rows * p.width) return;
  const int64_t row = i / p.width, column = i % p.width;
  const float b = p.shared_row != nullptr ? p.shared_row[column]
                                          : Load(p.b.Row<const Act>(row) + column);
  Store(p.y.Row<Act>(row) + column, Load(p.a.Row<const Act>(row) + column) + b);
}

#endif  // PAGEMILL_SYCL_OPS_ADD_ADD_ACT_KERNEL_H_
