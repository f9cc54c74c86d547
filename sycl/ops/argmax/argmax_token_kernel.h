#ifndef PAGEMILL_SYCL_OPS_ARGMAX_ARGMAX_TOKEN_KERNEL_H_
#define PAGEMILL_SYCL_OPS_ARGMAX_ARGMAX_TOKEN_KERNEL_H_

#include "sycl/ops/argmax/argmax_params.h"
#include "sycl/ops/kernel.h"

// A work-group for each row.
PAGEMILL_KERNEL void argmax_kernel(ArgmaxParams p) {
  const int64_t row = GroupId();
  const float* x = p.x.Row<const float>(row);
  float value = -kInfinity;
  int32_t column = p.width;  // of no element
  bool invalid = false;
  for (int32_t v = LocalId(); v < p.width; v += GroupSize()) {
    invalid = invalid || sycl::isnan(x[v]) || x[v] == kInfinity;
    if (!(x[v] > value)) continue;
    value = x[v];
    column = v;
  }
  invalid = sycl::any_of_group(Group(), invalid);
  const float largest = sycl::reduce_over_group(Group(), value, sycl::maximum<float>());
  if (value != largest) column = p.width;
  column = sycl::reduce_over_group(Group(), column, sycl::minimum<int32_t>());
  if (LocalId() != 0) return;
  const bool found = !invalid && column < p.width;
  p.columns[row] = found ? column : -1;
  p.values[row] = found ? x[column] : invalid ? kInfinity : -kInfinity;
}

#endif  // PAGEMILL_SYCL_OPS_ARGMAX_ARGMAX_TOKEN_KERNEL_H_
