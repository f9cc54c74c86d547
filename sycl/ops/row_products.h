// File: sycl/ops/row_products.h
// Products of a row of weights and rows of activations, of all ops that multiply with weights: they
// have the same bits. Kernel text only.
//
//   float sums[kRows];
//   ProductsOf<kRows>(p.w, matrix, row, x, p.k, sums);   // the same in all lanes of the sub-group
#ifndef PAGEMILL_SYCL_OPS_ROW_PRODUCTS_H_
#define PAGEMILL_SYCL_OPS_ROW_PRODUCTS_H_

#include "sycl/ops/kernel.h"
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

#endif  // PAGEMILL_SYCL_OPS_ROW_PRODUCTS_H_
