#ifndef PAGEMILL_SYCL_OPS_LINEAR_LINEAR_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_LINEAR_LINEAR_ACT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/linear/linear_params.h"
#include "sycl/ops/weights.h"

// sums[r] = the product of w and x[r], which have k elements, added by lanes. Their order depends
// on k alone, so that a row has the same bits whatever the others are.
template <int kRows, typename Row>
inline void Products(const Row& w, const Act* const* x, int64_t k, float* sums) {
  for (int r = 0; r < kRows; ++r) sums[r] = 0;
  for (int64_t i = Lane(); i < k; i += kLanes) {
    const float weight = w.At(i);
    for (int r = 0; r < kRows; ++r) sums[r] = sycl::fma(weight, Load(x[r] + i), sums[r]);
  }
  for (int r = 0; r < kRows; ++r) {
    sums[r] = sycl::reduce_over_group(SubGroup(), sums[r], sycl::plus<float>());
  }
}

// With a row of a matrix.
template <int kRows>
inline void ProductsOf(const WeightMatrices& w, int64_t matrix, int64_t row, const Act* const* x,
                       int64_t k, float* sums) {
  WithWeightRow(w, matrix, row, [&](const auto& of_w) { Products<kRows>(of_w, x, k, sums); });
}

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

#endif  // PAGEMILL_SYCL_OPS_LINEAR_LINEAR_ACT_KERNEL_H_
