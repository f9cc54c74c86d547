// File: cc/ops/linear/block_kernels/quantized_activations_avx2.h
// Quantizes rows of x as quantized_activations.h describes, with AVX2: to bytes, or to words for
// products of 16-bit numbers. For files compiled for AVX2 and more only: everything has internal
// linkage.
//
// Words replace two planes of bytes: 4 integers of a quad as int16 in the order 0, 2, 1, 3, so that
// a 32-bit lane matches the even or the odd bytes of a lane of weights.
#ifndef PAGEMILL_CC_OPS_LINEAR_BLOCK_KERNELS_QUANTIZED_ACTIVATIONS_AVX2_H_
#define PAGEMILL_CC_OPS_LINEAR_BLOCK_KERNELS_QUANTIZED_ACTIVATIONS_AVX2_H_

#include <immintrin.h>

#include <cstdint>

#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/quantized_activations.h"
#include "cc/tensor/dtype.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {
namespace {

// Storage of integers.
enum class XOrder { kOnePlane, kTwoPlanes, kWords, kWordsOf8Bits };

// Size in units of 32 bytes.
template <XOrder kOrder>
constexpr int kPlacesOf = kOrder == XOrder::kOnePlane ? 1 : 2;
// The integer of the largest |x|.
template <XOrder kOrder>
constexpr int kLevelsOf =
    kOrder == XOrder::kOnePlane || kOrder == XOrder::kWordsOf8Bits ? 127 : 127 * 128;

PAGEMILL_INLINE void StoreAt(uint8_t* out, __m256i value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), value);
}

// Stores 32 integers as bytes, in order.
PAGEMILL_INLINE void StoreBytes(const __m256i integers[4], uint8_t* out) {
  const __m256i words[] = {_mm256_packs_epi32(integers[0], integers[1]),
                           _mm256_packs_epi32(integers[2], integers[3])};
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  StoreAt(out, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words[0], words[1]), order));
}

template <XOrder kOrder>
PAGEMILL_INLINE void StoreIntegers(const __m256i integers[4], uint8_t* out) {
  if constexpr (kOrder == XOrder::kOnePlane) {
    StoreBytes(integers, out);
  } else if constexpr (kOrder == XOrder::kTwoPlanes) {
    __m256i upper[4], lower[4];
    for (int i = 0; i < 4; ++i) {
      upper[i] = _mm256_srai_epi32(_mm256_add_epi32(integers[i], _mm256_set1_epi32(64)), 7);
      lower[i] = _mm256_sub_epi32(integers[i], _mm256_slli_epi32(upper[i], 7));
    }
    StoreBytes(upper, out);
    StoreBytes(lower, out + 32);
  } else {
    constexpr int kEvenFirst = 0xD8;  // 0, 2, 1, 3
    for (int i = 0; i < 2; ++i) {
      const __m256i words = _mm256_permute4x64_epi64(
          _mm256_packs_epi32(integers[2 * i], integers[2 * i + 1]), kEvenFirst);
      StoreAt(out + 32 * i,
              _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, kEvenFirst), kEvenFirst));
    }
  }
}

PAGEMILL_INLINE __m128i Fold(__m256i v) {
  return _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

PAGEMILL_INLINE int32_t Sum(__m256i v) {
  __m128i sum = Fold(v);
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1)));
}

PAGEMILL_INLINE uint32_t Largest(__m256i v) {
  __m128i top = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  top = _mm_max_epu32(top, _mm_shuffle_epi32(top, 0x4E));
  top = _mm_max_epu32(top, _mm_shuffle_epi32(top, 0xB1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(top));
}

// The bits of the largest magnitude of a block: compared as integers, magnitudes have the order of
// their values, and NaN is the largest.
PAGEMILL_INLINE uint32_t LargestBits(const float* x) {
  __m256i largest = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    const __m256i values = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + 8 * i));
    largest = _mm256_max_epu32(largest, _mm256_and_si256(values, _mm256_set1_epi32(0x7fffffff)));
  }
  return Largest(largest);
}

// `bits` are the block's LargestBits.
template <DType kDType, XOrder kOrder>
PAGEMILL_INLINE void QuantizeBlock(const float* x, uint32_t bits, uint8_t* out) {
  const BlockScale by = BlockScaleOf<kLevelsOf<kOrder>>(bits);
  const __m256 inverse = _mm256_set1_ps(by.inverse);
  __m256i integers[4];
  for (int i = 0; i < 4; ++i) {
    integers[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse));
  }
  StoreIntegers<kOrder>(integers, out);
  const int32_t first = Sum(_mm256_add_epi32(integers[0], integers[1]));
  const int32_t second = Sum(_mm256_add_epi32(integers[2], integers[3]));
  FinishRecord<kDType, kPlacesOf<kOrder>>(by.scale, first, second, out);
}

}  // namespace
}  // namespace pagemill::ops::linear

#undef PAGEMILL_INLINE

#endif  // PAGEMILL_CC_OPS_LINEAR_BLOCK_KERNELS_QUANTIZED_ACTIVATIONS_AVX2_H_
