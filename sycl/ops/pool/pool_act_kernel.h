#ifndef PAGEMILL_SYCL_OPS_POOL_POOL_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_POOL_POOL_ACT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/pool/pool_params.h"

// A sum with the rounding errors of its additions (Knuth's two-sum): many GPUs have no double.
struct ExactSum {
  float sum = 0, error = 0;
  void Add(float x) {
    const float before = sum;
    sum += x;
    const float added = sum - before;
    error += (before - (sum - added)) + (x - added);
  }
};

// Column `i` of row `row` of the result, before it is normalized.
inline float PooledAt(const PoolParams& p, int64_t row, int64_t i) {
  if (p.tokens == PooledTokens::kAll) return Load(p.x.Row<const Act>(row) + i);
  const int32_t begin = p.query_start[row], end = p.query_start[row + 1];
  if (begin == end) return 0;
  if (p.tokens == PooledTokens::kFirst) return Load(p.x.Row<const Act>(begin) + i);
  if (p.tokens == PooledTokens::kLast) return Load(p.x.Row<const Act>(end - 1) + i);
  ExactSum sum;
  for (int32_t t = begin; t < end; ++t) sum.Add(Load(p.x.Row<const Act>(t) + i));
  return (sum.sum + sum.error) / static_cast<float>(end - begin);
}

// A work-group for each row of the result. Means are computed again to be normalized: it runs once
// a step.
PAGEMILL_KERNEL void pool_kernel(PoolParams p) {
  const int64_t row = GroupId();
  float norm = 1;
  if (p.normalize) {
    float squares = 0;
    for (int64_t i = LocalId(); i < p.width; i += GroupSize()) {
      const float value = PooledAt(p, row, i);
      squares = sycl::fma(value, value, squares);
    }
    squares = sycl::reduce_over_group(Group(), squares, sycl::plus<float>());
    norm = sycl::fmax(sycl::sqrt(squares), 1e-12f);
  }
  for (int64_t i = LocalId(); i < p.width; i += GroupSize()) {
    const float value = PooledAt(p, row, i) / norm;
    if (p.f32) {
      p.y.Row<float>(row)[i] = value;
    } else {
      Store(p.y.Row<Act>(row) + i, value);
    }
  }
}

#endif  // PAGEMILL_SYCL_OPS_POOL_POOL_ACT_KERNEL_H_
