#ifndef PAGEMILL_SYCL_OPS_LAYER_NORM_LAYER_NORM_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_LAYER_NORM_LAYER_NORM_ACT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/layer_norm/layer_norm_params.h"

// A work-group for each group of elements of a row.
PAGEMILL_KERNEL void layer_norm_kernel(LayerNormParams p) {
  const int64_t row = GroupId() / p.groups, part = GroupId() % p.groups;
  const Act* x = p.x.Row<const Act>(row) + part * p.size;
  Act* y = p.y.Row<Act>(row) + part * p.size;
  const float* w = p.w + part * p.parameter_step;
  const float* b = p.b + part * p.parameter_step;
  const float size = static_cast<float>(p.size);
  float sum = 0;
  for (int64_t i = LocalId(); i < p.size; i += GroupSize()) sum += Load(x + i);
  const float mean = sycl::reduce_over_group(Group(), sum, sycl::plus<float>()) / size;
  float squares = 0;
  for (int64_t i = LocalId(); i < p.size; i += GroupSize()) {
    const float difference = Load(x + i) - mean;
    squares = sycl::fma(difference, difference, squares);
  }
  const float variance = sycl::reduce_over_group(Group(), squares, sycl::plus<float>()) / size;
  const float scale = 1.0f / sycl::sqrt(variance + p.eps);
  for (int64_t i = LocalId(); i < p.size; i += GroupSize()) {
    Store(y + i, (Load(x + i) - mean) * scale * (w[i] + p.weight_offset) + b[i]);
  }
}

#endif  // PAGEMILL_SYCL_OPS_LAYER_NORM_LAYER_NORM_ACT_KERNEL_H_
