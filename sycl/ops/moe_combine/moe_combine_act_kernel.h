#ifndef PAGEMILL_SYCL_OPS_MOE_COMBINE_MOE_COMBINE_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_MOE_COMBINE_MOE_COMBINE_ACT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/moe_combine/moe_combine_params.h"

// A work-item for each element of the result.
PAGEMILL_KERNEL void moe_combine_kernel(MoeCombineParams p) {
  const int64_t row = GlobalId() / p.width, i = GlobalId() % p.width;
  if (row >= p.rows) return;
  const Act* x = p.x.Row<const Act>(row) + i;
  const float* weights = p.weights.Row<const float>(row);
  float sum = 0;
  for (int64_t j = 0; j < p.choices; ++j) {
    sum = sycl::fma(weights[j], Load(x + j * p.step), sum);
  }
  Store(p.y.Row<Act>(row) + i, sum);
}

#endif  // PAGEMILL_SYCL_OPS_MOE_COMBINE_MOE_COMBINE_ACT_KERNEL_H_
