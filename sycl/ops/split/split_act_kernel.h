#ifndef PAGEMILL_SYCL_OPS_SPLIT_SPLIT_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_SPLIT_SPLIT_ACT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/split/split_params.h"

// A work-item for each element of one result.
PAGEMILL_KERNEL void split_kernel(SplitParams p) {
  const int64_t row = GlobalId() / p.width, i = GlobalId() % p.width;
  if (row >= p.rows) return;
  p.y.Row<Act>(row)[i] = p.x.Row<const Act>(row)[i / p.part * p.piece + p.first + i % p.part];
}

#endif  // PAGEMILL_SYCL_OPS_SPLIT_SPLIT_ACT_KERNEL_H_
