// File: cc/ops/linear/scaled/scaled_outputs_avx512.h
// From sums of a slice to outputs, in AVX-512 registers. Inline functions: for files compiled for
// AVX-512 only.
#ifndef PAGEMILL_CC_OPS_LINEAR_SCALED_SCALED_OUTPUTS_AVX512_H_
#define PAGEMILL_CC_OPS_LINEAR_SCALED_SCALED_OUTPUTS_AVX512_H_

#include <immintrin.h>

#include <cstdint>

#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/scaled/activation_tiles_avx512.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::scaled {
namespace {

// The scales of 16 rows of the slice, from `first` on.
PAGEMILL_INLINE __m512 LoadScales(const linear::PackedProduct& p, int64_t first) {
  if (p.scales.block_rows == 1 && p.scales.stride == 1) {
    return _mm512_maskz_loadu_ps(FirstLanes(p.m - first), p.scales.OfRow(first));
  }
  alignas(64) float values[16] = {};
  for (int64_t i = 0; i < 16 && first + i < p.m; ++i) values[i] = *p.scales.OfRow(first + i);
  return _mm512_load_ps(values);
}

// The scales of 16 rows of the slice, from `first` on, in one block of columns.
PAGEMILL_INLINE __m512 LoadScales(const linear::PackedProduct& p, int64_t first, int64_t block) {
  if (first >= p.m) return _mm512_setzero_ps();
  const int64_t last = (first + 16 < p.m ? first + 16 : p.m) - 1;
  if (p.scales.OfRow(first) == p.scales.OfRow(last)) {
    return _mm512_set1_ps(p.scales.OfRow(first)[block]);
  }
  if (p.scales.block_rows == 1 && p.scales.stride == 1) {
    return _mm512_maskz_loadu_ps(FirstLanes(p.m - first), p.scales.OfRow(first));
  }
  alignas(64) float values[16] = {};
  for (int64_t row = first; row <= last; ++row) values[row - first] = p.scales.OfRow(row)[block];
  return _mm512_load_ps(values);
}

// Stores 16 outputs of a row of x, whose first is `y`, from the weight row `first` on.
PAGEMILL_INLINE void StoreOutputs(const linear::PackedProduct& p, __m512i sum, __m512 scale,
                                  float* y, int64_t first) {
  const __mmask16 used = FirstLanes(p.m - first);
  __m512 out = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale);
  if (p.bias != nullptr) out = _mm512_add_ps(out, _mm512_maskz_loadu_ps(used, p.bias + first));
  _mm512_mask_storeu_ps(y + first, used, out);
}

}  // namespace
}  // namespace pagemill::ops::scaled

#undef PAGEMILL_INLINE

#endif  // PAGEMILL_CC_OPS_LINEAR_SCALED_SCALED_OUTPUTS_AVX512_H_
