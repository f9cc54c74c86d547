#ifndef PAGEMILL_SYCL_OPS_SCALE_SCALE_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_SCALE_SCALE_ACT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/scale/scale_params.h"

// A work-item for each element.
PAGEMILL_KERNEL void scale_kernel(ScaleParams p) {
  const int64_t i = GlobalId();
  if (i >= p.rows * p.width) return;
  const int64_t row = i / p.width, column = i % p.width;
  float value = Load(p.x.Row<const Act>(row) + column) * p.by;
  if (p.factors.data != nullptr) value *= p.factors.Row<const float>(row)[column / p.group];
  Store(p.y.Row<Act>(row) + column, value);
}

#endif  // PAGEMILL_SYCL_OPS_SCALE_SCALE_ACT_KERNEL_H_
