#ifndef PAGEMILL_SYCL_OPS_HEAD_LINEAR_HEAD_LINEAR_LATENT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_HEAD_LINEAR_HEAD_LINEAR_LATENT_KERNEL_H_

#include "sycl/ops/head_linear/head_linear_params.h"
#include "sycl/ops/kernel.h"
#include "sycl/ops/linear/linear_params.h"
#include "sycl/ops/row_products.h"

// Rows of x that read a head's matrix together. Those behind the last are the last.
inline void HeadRows(const HeadLinearParams& p, int64_t first, int64_t head,
                     const Act* (&x)[kLinearRows]) {
  for (int r = 0; r < kLinearRows; ++r) {
    x[r] = p.x.Row<const Act>(first + r < p.n ? first + r : p.n - 1) + head * p.k;
  }
}

inline void StoreHeadRows(const HeadLinearParams& p, int64_t first, int64_t column,
                          const float* sums) {
  for (int r = 0; r < kLinearRows && first + r < p.n; ++r) {
    if (p.f32_result) {
      p.y.Row<float>(first + r)[column] = sums[r];
    } else {
      Store(p.y.Row<Act>(first + r) + column, sums[r]);
    }
  }
}

// A sub-group for each column of y and kLinearRows of its rows.
PAGEMILL_KERNEL void head_linear_kernel(HeadLinearParams p) {
  const int64_t column = GlobalSubGroup() % (p.heads * p.m), head = column / p.m;
  const int64_t first = GlobalSubGroup() / (p.heads * p.m) * kLinearRows;
  if (first >= p.n) return;
  const Act* x[kLinearRows];
  HeadRows(p, first, head, x);
  float sums[kLinearRows];
  ProductsOf<kLinearRows>(p.w, head, column % p.m, x, p.k, sums);
  if (Lane() == 0) StoreHeadRows(p, first, column, sums);
}

// With transposed matrices: a work-item, so that neighbouring ones read neighbouring weights.
PAGEMILL_KERNEL void head_linear_transposed_kernel(HeadLinearParams p) {
  const int64_t column = GlobalId() % (p.heads * p.m), head = column / p.m;
  const int64_t first = GlobalId() / (p.heads * p.m) * kLinearRows;
  if (first >= p.n) return;
  const Act* x[kLinearRows];
  HeadRows(p, first, head, x);
  float sums[kLinearRows] = {};
  for (int64_t k = 0; k < p.k; ++k) {
    float weight = 0;
    WithWeightRow(p.w, head, k, [&](const auto& w) { weight = w.At(column % p.m); });
    for (int r = 0; r < kLinearRows; ++r) sums[r] = sycl::fma(weight, Load(x[r] + k), sums[r]);
  }
  StoreHeadRows(p, first, column, sums);
}

#endif  // PAGEMILL_SYCL_OPS_HEAD_LINEAR_HEAD_LINEAR_LATENT_KERNEL_H_
