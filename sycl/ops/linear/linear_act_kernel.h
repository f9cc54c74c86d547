#ifndef PAGEMILL_SYCL_OPS_LINEAR_LINEAR_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_LINEAR_LINEAR_ACT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/linear/linear_params.h"
#include "sycl/ops/row_products.h"

// A sub-group for each column of y and kLinearRows of its rows.
PAGEMILL_KERNEL void linear_kernel(LinearParams p) {
  const int64_t column = GlobalSubGroup() % p.m;
  const int64_t first = GlobalSubGroup() / p.m * kLinearRows;
  if (first >= p.n) return;
  const Act* x[kLinearRows];
  for (int r = 0; r < kLinearRows; ++r) {
    x[r] = p.x.Row<const Act>(first + r < p.n ? first + r : p.n - 1);
  }
  float sums[kLinearRows];
  ProductsOf<kLinearRows>(p.w, /*matrix=*/0, column, x, p.k, sums);
  const float bias = p.bias == nullptr ? 0.0f : p.bias[column];
  if (Lane() != 0) return;
  for (int r = 0; r < kLinearRows && first + r < p.n; ++r) {
    if (p.f32_result) {
      p.y.Row<float>(first + r)[column] = sums[r] + bias;
    } else {
      Store(p.y.Row<Act>(first + r) + column, sums[r] + bias);
    }
  }
}

// A work-group for each row.
PAGEMILL_KERNEL void decode_weights_kernel(DecodeWeightsParams p) {
  const int64_t row = GroupId();
  Act* to = static_cast<Act*>(p.to) + row * p.columns;
  WithWeightRow(p.w, /*matrix=*/0, p.first_row + row, [&](const auto& of_w) {
    for (int64_t i = LocalId(); i < p.columns; i += GroupSize()) Store(to + i, of_w.At(i));
  });
}

#endif  // PAGEMILL_SYCL_OPS_LINEAR_LINEAR_ACT_KERNEL_H_
