#ifndef PAGEMILL_SYCL_OPS_CONCAT_CONCAT_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_CONCAT_CONCAT_ACT_KERNEL_H_

#include "sycl/ops/concat/concat_params.h"
#include "sycl/ops/kernel.h"

// A work-item for each element of one operand.
PAGEMILL_KERNEL void concat_kernel(ConcatParams p) {
  const int64_t row = GlobalId() / p.width, i = GlobalId() % p.width;
  if (row >= p.rows) return;
  p.y.Row<Act>(row)[p.first + i] = p.x.Row<const Act>(row)[i];
}

#endif  // PAGEMILL_SYCL_OPS_CONCAT_CONCAT_ACT_KERNEL_H_
