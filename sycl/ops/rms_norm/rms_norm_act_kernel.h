#ifndef PAGEMILL_SYCL_OPS_RMS_NORM_RMS_NORM_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_RMS_NORM_RMS_NORM_ACT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/rms_norm/rms_norm_params.h"

// 1 / sqrt(mean of squares + eps) of the elements whose squares the group's work-items have added.
inline float NormScale(float squares, int64_t size, float eps) {
  const float sum = sycl::reduce_over_group(Group(), squares, sycl::plus<float>());
  return 1.0f / sycl::sqrt(sum / static_cast<float>(size) + eps);
}

// A work-group for each group of elements of a row.
PAGEMILL_KERNEL void rms_norm_kernel(RmsNormParams p) {
  const int64_t row = GroupId() / p.groups, part = GroupId() % p.groups;
  const Act* x = p.x.Row<const Act>(row) + part * p.size;
  Act* y = p.y.Row<Act>(row) + part * p.size;
  const float* w = p.w + part * p.weight_step;
  float squares = 0;
  for (int64_t i = LocalId(); i < p.size; i += GroupSize()) {
    const float value = Load(x + i);
    squares = sycl::fma(value, value, squares);
  }
  const float scale = NormScale(squares, p.size, p.eps);
  for (int64_t i = LocalId(); i < p.size; i += GroupSize()) {
    Store(y + i, Load(x + i) * scale * (w[i] + p.weight_offset));
  }
}

#endif  // PAGEMILL_SYCL_OPS_RMS_NORM_RMS_NORM_ACT_KERNEL_H_
