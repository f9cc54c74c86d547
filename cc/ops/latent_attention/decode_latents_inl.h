// File: cc/ops/latent_attention/decode_latents_inl.h
// Rows of a latent cache in fp8 as floats (cc/ops/latent_write/latent_f8_row.h). Inline functions,
// for sources of vec_cc_library() alone.
//
//   DecodeLatent(row, bytes, to);   // row.codes + row.rest elements
//
// A code shifted by 7 is the f16 of 2^-8 times its number, subnormal ones included, which CPUs
// widen without the penalty that subnormal floats have. All ones, a NaN, is never stored.
#ifndef PAGEMILL_CC_OPS_LATENT_ATTENTION_DECODE_LATENTS_INL_H_
#define PAGEMILL_CC_OPS_LATENT_ATTENTION_DECODE_LATENTS_INL_H_

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

#include "cc/ops/latent_write/latent_f8_row.h"
#include "cc/tensor/float8.h"

namespace pagemill::ops {
namespace {

#if defined(PAGEMILL_VEC_AVX512)

// Codes that are decoded at once.
constexpr int kCodes = 32;

inline void DecodeCodes(const uint8_t* codes, float scale, float* to) {
  const __m512i wide = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)codes));
  // Without the second copy of the sign, which is where exponents of f16 begin.
  const __m512i halves =
      _mm512_and_si512(_mm512_slli_epi16(wide, 7), _mm512_set1_epi16(int16_t(0xbfff)));
  const __m512 factor = _mm512_set1_ps(scale * 256);
  const __m512 low = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(halves)), factor);
  const __m512 high = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1)), factor);
  _mm512_storeu_ps(to, low);
  _mm512_storeu_ps(to + 16, high);
}

#elif defined(PAGEMILL_VEC_AVX2)

constexpr int kCodes = 16;

inline void DecodeCodes(const uint8_t* codes, float scale, float* to) {
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)codes));
  const __m256i halves =
      _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(int16_t(0xbfff)));
  const __m256 factor = _mm256_set1_ps(scale * 256);
  const __m256 low = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), factor);
  const __m256 high = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)), factor);
  _mm256_storeu_ps(to, low);
  _mm256_storeu_ps(to + 8, high);
}

#else

constexpr int kCodes = 8;

inline void DecodeCodes(const uint8_t* codes, float scale, float* to) {
  for (int i = 0; i < kCodes; ++i) to[i] = F8E4M3ToFloat(codes[i]) * scale;
}

#endif

inline void DecodeLatent(const LatentF8Row& row, const uint8_t* from, float* to) {
  for (int64_t begin = 0; begin < row.codes; begin += kLatentGroup) {
    const int64_t end = row.codes - begin < kLatentGroup ? row.codes : begin + kLatentGroup;
    float scale;
    std::memcpy(&scale, from + row.scales_offset() + 4 * (begin / kLatentGroup), sizeof(scale));
    int64_t i = begin;
    for (; i + kCodes <= end; i += kCodes) DecodeCodes(from + i, scale, to + i);
    if (i == end) continue;
    uint8_t codes[kCodes] = {};
    float elements[kCodes];
    std::memcpy(codes, from + i, static_cast<size_t>(end - i));
    DecodeCodes(codes, scale, elements);
    std::memcpy(to + i, elements, static_cast<size_t>(end - i) * sizeof(float));
  }
  const uint8_t* const rest = from + row.rest_offset();
  for (int64_t i = 0; i < row.rest; ++i) {
    uint16_t bits;
    std::memcpy(&bits, rest + 2 * i, sizeof(bits));
    to[row.codes + i] = __builtin_bit_cast(float, uint32_t{bits} << 16);
  }
}

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_LATENT_ATTENTION_DECODE_LATENTS_INL_H_
