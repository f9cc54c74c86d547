#ifndef PAGEMILL_SYCL_OPS_UNFOLD_UNFOLD_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_UNFOLD_UNFOLD_ACT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/unfold/unfold_params.h"

// A work-item for each element of the result.
PAGEMILL_KERNEL void unfold_kernel(UnfoldParams p) {
  const int64_t row = GlobalId() / p.width, i = GlobalId() % p.width;
  if (row >= p.rows) return;
  const int64_t elements = p.channels * p.size;  // of a window
  const int64_t window = i / elements, element = i % elements;
  const int64_t position = window * p.stride + element % p.size - p.padding;
  const bool inside = position >= 0 && position < p.positions;
  p.y.Row<Act>(row)[i] =
      inside ? p.x.Row<const Act>(row)[position * p.channels + element / p.size] : Act{};
}

#endif  // PAGEMILL_SYCL_OPS_UNFOLD_UNFOLD_ACT_KERNEL_H_
