#ifndef PAGEMILL_SYCL_OPS_ADD_RMS_NORM_ADD_RMS_NORM_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_ADD_RMS_NORM_ADD_RMS_NORM_ACT_KERNEL_H_

#include "sycl/ops/add_rms_norm/add_rms_norm_params.h"
#include "sycl/ops/kernel.h"
#include "sycl/ops/rms_norm/rms_norm_act_kernel.h"  // NormScale()

// A work-group for each row. A work-item reads again only the sums that it has stored itself.
PAGEMILL_KERNEL void add_rms_norm_kernel(AddRmsNormParams p) {
  const int64_t row = GroupId();
  const Act* x = p.x.Row<const Act>(row);
  const Act* residual = p.residual.Row<const Act>(row);
  Act* sum = p.sum.Row<Act>(row);
  Act* y = p.y.Row<Act>(row);
  float squares = 0;
  for (int64_t i = LocalId(); i < p.size; i += GroupSize()) {
    Store(sum + i, Load(x + i) + Load(residual + i));
    const float value = Load(sum + i);
    squares = sycl::fma(value, value, squares);
  }
  const float scale = NormScale(squares, p.size, p.eps);
  for (int64_t i = LocalId(); i < p.size; i += GroupSize()) {
    Store(y + i, Load(sum + i) * scale * (p.w[i] + p.weight_offset));
  }
}

#endif  // PAGEMILL_SYCL_OPS_ADD_RMS_NORM_ADD_RMS_NORM_ACT_KERNEL_H_
