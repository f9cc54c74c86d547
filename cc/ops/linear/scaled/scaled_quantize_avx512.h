// File: cc/ops/linear/scaled/scaled_quantize_avx512.h
// Quantizes rows of x to int8 with a scale each, in AVX-512 registers. Inline functions: for files
// compiled for AVX-512 only.
#ifndef PAGEMILL_CC_OPS_LINEAR_SCALED_SCALED_QUANTIZE_AVX512_H_
#define PAGEMILL_CC_OPS_LINEAR_SCALED_SCALED_QUANTIZE_AVX512_H_

#include <immintrin.h>

#include <cstdint>

#include "cc/ops/linear/scaled/activation_tiles_avx512.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::scaled {
namespace {

// Compared as integers, magnitudes have the order of their values, and NaN is the largest: the
// scale of a row with a NaN is NaN, and so are all its outputs.
PAGEMILL_INLINE float LargestMagnitude(const float* x, int64_t k) {
  __m512i largest = _mm512_setzero_si512();
  for (int64_t at = 0; at < k; at += 16) {
    const __m512i bits = _mm512_castps_si512(_mm512_maskz_loadu_ps(FirstLanes(k - at), x + at));
    largest = _mm512_max_epu32(largest, _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)));
  }
  return __builtin_bit_cast(float, _mm512_reduce_max_epu32(largest));
}

PAGEMILL_INLINE RowScale ScaleOf(const float* x, int64_t k, float* inverse) {
  const float top = LargestMagnitude(x, k);
  const bool is_zero = top < kSmallestRow;
  *inverse = is_zero ? 0 : 127 / top;
  return {is_zero ? 0 : top * (1.0f / 127), 0};
}

// RowScale::start of a row of integers with this sum: what is added to the sum of its products with
// weights plus kInt8Offset. Both may wrap; the result is exact (kMaxInt8K).
PAGEMILL_INLINE int32_t OffsetSum(int32_t sum) {
  return static_cast<int32_t>(0u - kInt8Offset * static_cast<uint32_t>(sum));
}

// Quantizes 64 elements from `at` on of a row of k to 16 quads and adds the integers to `sum`.
PAGEMILL_INLINE __m512i QuantizeQuads(const float* x, int64_t at, int64_t k, float inverse,
                                      int32_t* sum) {
  __m512i integers[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const int64_t begin = at + 16 * i;
    const __m512 values = _mm512_maskz_loadu_ps(FirstLanes(k - begin), x + begin);
    integers[i] = _mm512_cvtps_epi32(_mm512_mul_ps(values, _mm512_set1_ps(inverse)));
  }
  *sum += _mm512_reduce_add_epi32(_mm512_add_epi32(_mm512_add_epi32(integers[0], integers[1]),
                                                   _mm512_add_epi32(integers[2], integers[3])));
  __m512i bytes = _mm512_castsi128_si512(_mm512_cvtsepi32_epi8(integers[0]));
  bytes = _mm512_inserti32x4(bytes, _mm512_cvtsepi32_epi8(integers[1]), 1);
  bytes = _mm512_inserti32x4(bytes, _mm512_cvtsepi32_epi8(integers[2]), 2);
  bytes = _mm512_inserti32x4(bytes, _mm512_cvtsepi32_epi8(integers[3]), 3);
  const __m128i order = _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
  return _mm512_shuffle_epi8(bytes, _mm512_broadcast_i32x4(order));
}

}  // namespace
}  // namespace pagemill::ops::scaled

#undef PAGEMILL_INLINE

#endif  // PAGEMILL_CC_OPS_LINEAR_SCALED_SCALED_QUANTIZE_AVX512_H_
