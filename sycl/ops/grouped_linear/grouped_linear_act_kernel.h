#ifndef PAGEMILL_SYCL_OPS_GROUPED_LINEAR_GROUPED_LINEAR_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_GROUPED_LINEAR_GROUPED_LINEAR_ACT_KERNEL_H_

#include "sycl/ops/grouped_linear/grouped_linear_params.h"
#include "sycl/ops/kernel.h"
#include "sycl/ops/row_products.h"

// A sub-group for each element of the result.
PAGEMILL_KERNEL void grouped_linear_kernel(GroupedLinearParams p) {
  const int64_t column = GlobalSubGroup() % p.m, row = GlobalSubGroup() / p.m;
  const int64_t token = row / p.choices, choice = row % p.choices;
  if (token >= p.tokens) return;
  const int32_t expert = p.ids.Row<const int32_t>(token)[choice];
  float sum = 0;
  if (expert >= 0 && expert < p.experts) {
    const Act* x = p.x.Row<const Act>(token) + choice * p.x_step;
    ProductsOf<1>(p.w, expert, column, &x, p.k, &sum);
    sum += p.bias.data == nullptr ? 0.0f : p.bias.Row<const float>(expert)[column];
  }
  if (Lane() == 0) Store(p.y.Row<Act>(token) + choice * p.m + column, sum);
}

#endif  // PAGEMILL_SYCL_OPS_GROUPED_LINEAR_GROUPED_LINEAR_ACT_KERNEL_H_
