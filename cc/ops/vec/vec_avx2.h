// File: cc/ops/vec/vec_avx2.h
// `Vec` on AVX2 with FMA: 8 floats a register. The interface is described in vec_portable.h.
// Include it only from a file compiled with the avx2 flags, and only one vec_*.h per file.
#ifndef PAGEMILL_CC_OPS_VEC_VEC_AVX2_H_
#define PAGEMILL_CC_OPS_VEC_VEC_AVX2_H_

#include <immintrin.h>

#include <cstdint>

#include "cc/tensor/float8.h"

namespace pagemill::ops {
namespace {

struct Vec {
  using F = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kRegisters = 16;

  static F Zero() { return _mm256_setzero_ps(); }
  static F Set(float v) { return _mm256_set1_ps(v); }
  static F Load(const float* p) { return _mm256_loadu_ps(p); }
  static F LoadN(const float* p, int n) { return _mm256_maskload_ps(p, Below(n)); }
  static void Store(float* p, F v) { _mm256_storeu_ps(p, v); }
  static void StoreN(float* p, F v, int n) { _mm256_maskstore_ps(p, Below(n), v); }

  static F Load(const uint16_t* p) { return Widen(_mm_loadu_si128((const __m128i*)p)); }
  static F LoadN(const uint16_t* p, int n) {
    alignas(16) uint16_t lanes[8] = {};
    for (int i = 0; i < 8 && i < n; ++i) lanes[i] = p[i];
    return Widen(_mm_load_si128((const __m128i*)lanes));
  }
  static F Load(const int8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)));
  }
  static F LoadN(const int8_t* p, int n) {
    int8_t lanes[8] = {};
    for (int i = 0; i < 8 && i < n; ++i) lanes[i] = p[i];
    return Load(lanes);
  }
  static F Load(const uint8_t* p) {
    return WidenF8(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p)));
  }
  static F LoadN(const uint8_t* p, int n) {
    uint8_t lanes[8] = {};
    for (int i = 0; i < 8 && i < n; ++i) lanes[i] = p[i];
    return Load(lanes);
  }
  static void Store(uint8_t* p, F v) { StoreN(p, v, 8); }
  static void StoreN(uint8_t* p, F v, int n) {
    float lanes[8];
    Store(lanes, v);
    for (int i = 0; i < 8 && i < n; ++i) p[i] = FloatToF8E4M3(lanes[i]);
  }
  static void Store(uint16_t* p, F v) { _mm_storeu_si128((__m128i*)p, Narrow(v)); }
  static void StoreN(uint16_t* p, F v, int n) {
    alignas(16) uint16_t lanes[8];
    _mm_store_si128((__m128i*)lanes, Narrow(v));
    for (int i = 0; i < 8 && i < n; ++i) p[i] = lanes[i];
  }

  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm256_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F Max(F a, F b) { return _mm256_max_ps(a, b); }
  static F Min(F a, F b) { return _mm256_min_ps(a, b); }
  static F Abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  static F CopySign(F magnitude, F sign) {
    const F bit = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(bit, magnitude), _mm256_and_ps(bit, sign));
  }
  static F Less(F a, F b, F then, F otherwise) {
    return _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  static F Range(F inside, F outside, int low, int high) {
    const __m256i mask = _mm256_andnot_si256(Below(low), Below(high));
    return _mm256_blendv_ps(outside, inside, _mm256_castsi256_ps(mask));
  }
  static F Round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F ScaleByPowerOf2(F a, F n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
  }

  static float First(F a) { return _mm256_cvtss_f32(a); }
  static F SwapPairs(F a) { return _mm256_permute_ps(a, 0xb1); }

  static void Transpose(F* r) {
    F t[8];
    Transpose4(r, t);
    Transpose4(r + 4, t + 4);
    for (int j = 0; j < 4; ++j) {
      r[j] = _mm256_permute2f128_ps(t[j], t[4 + j], 0x20);
      r[4 + j] = _mm256_permute2f128_ps(t[j], t[4 + j], 0x31);
    }
  }

  static float Sum(F a) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 pair = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
  }
  static float Maximum(F a) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 pair = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
  }

 private:
  // Transposes the 4 x 4 parts in each half of four registers.
  static void Transpose4(const F* r, F* t) {
    const F a = _mm256_unpacklo_ps(r[0], r[1]);
    const F b = _mm256_unpackhi_ps(r[0], r[1]);
    const F c = _mm256_unpacklo_ps(r[2], r[3]);
    const F d = _mm256_unpackhi_ps(r[2], r[3]);
    t[0] = _mm256_shuffle_ps(a, c, 0x44);
    t[1] = _mm256_shuffle_ps(a, c, 0xee);
    t[2] = _mm256_shuffle_ps(b, d, 0x44);
    t[3] = _mm256_shuffle_ps(b, d, 0xee);
  }
  // All bits of the lanes below n.
  static __m256i Below(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  // Avoids subnormal floats, which some CPUs multiply slowly.
  static F WidenF8(__m256i codes) {
    const __m256i magnitude = _mm256_and_si256(codes, _mm256_set1_epi32(0x7f));
    const F normal = _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_slli_epi32(magnitude, 20), _mm256_set1_epi32(120 << 23)));
    const F subnormal = _mm256_mul_ps(_mm256_cvtepi32_ps(magnitude), _mm256_set1_ps(0x1p-9f));
    const __m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), magnitude);
    const F finite = _mm256_blendv_ps(normal, subnormal, _mm256_castsi256_ps(small));
    const __m256i nan = _mm256_and_si256(_mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7f)),
                                         _mm256_set1_epi32(0x7fc00000));
    const __m256i sign = _mm256_slli_epi32(_mm256_xor_si256(codes, magnitude), 24);
    return _mm256_or_ps(finite, _mm256_castsi256_ps(_mm256_or_si256(sign, nan)));
  }
  static F Widen(__m128i v) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
  }
  // Rounds to nearest even; a NaN stays NaN (its quiet bit is set).
  static __m128i Narrow(F v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i unordered = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, unordered), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
  }
};

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_VEC_VEC_AVX2_H_
