#ifndef PAGEMILL_SYCL_OPS_SPARSE_RELU_SPARSE_RELU_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_SPARSE_RELU_SPARSE_RELU_ACT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/sparse_relu/sparse_relu_params.h"

// A work-group for each row; its variance is that of differences to the mean.
PAGEMILL_KERNEL void sparse_relu_kernel(SparseReluParams p) {
  const Act* x = p.x.Row<const Act>(GroupId());
  Act* y = p.y.Row<Act>(GroupId());
  const auto width = static_cast<float>(p.width);
  float sum = 0;
  for (int64_t i = LocalId(); i < p.width; i += GroupSize()) sum += Load(x + i);
  const float mean = sycl::reduce_over_group(Group(), sum, sycl::plus<float>()) / width;
  float squares = 0;
  for (int64_t i = LocalId(); i < p.width; i += GroupSize()) {
    const float difference = Load(x + i) - mean;
    squares = sycl::fma(difference, difference, squares);
  }
  const float variance = sycl::reduce_over_group(Group(), squares, sycl::plus<float>()) / width;
  const float cutoff = p.deviations * sycl::sqrt(variance);
  for (int64_t i = LocalId(); i < p.width; i += GroupSize()) {
    const float above = Load(x + i) - mean - cutoff;
    Store(y + i, above < 0 ? 0 : above);  // NaN stays
  }
}

#endif  // PAGEMILL_SYCL_OPS_SPARSE_RELU_SPARSE_RELU_ACT_KERNEL_H_
