// File: cc/ops/vec/vec_avx512.h
// `Vec` on AVX-512: 16 floats a register. The interface is described in vec_portable.h. Include it
// only from a file compiled with the avx512 flags, and only one vec_*.h per file.
#ifndef PAGEMILL_CC_OPS_VEC_VEC_AVX512_H_
#define PAGEMILL_CC_OPS_VEC_VEC_AVX512_H_

#include <immintrin.h>

#include <cstdint>

namespace pagemill::ops {
namespace {

struct Vec {
  using F = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kRegisters = 32;

  static F Zero() { return _mm512_setzero_ps(); }
  static F Set(float v) { return _mm512_set1_ps(v); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static F LoadN(const float* p, int n) { return _mm512_maskz_loadu_ps(Below(n), p); }
  static void Store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static void StoreN(float* p, F v, int n) { _mm512_mask_storeu_ps(p, Below(n), v); }

  static F Load(const uint16_t* p) { return Widen(_mm256_loadu_si256((const __m256i*)p)); }
  static F LoadN(const uint16_t* p, int n) { return Widen(_mm256_maskz_loadu_epi16(Below(n), p)); }
  static F Load(const int8_t* p) { return Convert(_mm_loadu_si128((const __m128i*)p)); }
  static F LoadN(const int8_t* p, int n) { return Convert(_mm_maskz_loadu_epi8(Below(n), p)); }
  static F Load(const uint8_t* p) {
    return WidenF8(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p)));
  }
  static F LoadN(const uint8_t* p, int n) {
    return WidenF8(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(Below(n), p)));
  }
  static void Store(uint8_t* p, F v) {
    _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(NarrowF8(v)));
  }
  static void StoreN(uint8_t* p, F v, int n) {
    _mm_mask_storeu_epi8(p, Below(n), _mm512_cvtepi32_epi8(NarrowF8(v)));
  }
  static void Store(uint16_t* p, F v) { _mm256_storeu_si256((__m256i*)p, Narrow(v)); }
  static void StoreN(uint16_t* p, F v, int n) { _mm256_mask_storeu_epi16(p, Below(n), Narrow(v)); }

  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static F Min(F a, F b) { return _mm512_min_ps(a, b); }
  static F Abs(F a) { return _mm512_abs_ps(a); }
  static F CopySign(F magnitude, F sign) {
    const F bit = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(bit, magnitude), _mm512_and_ps(bit, sign));
  }
  static F Less(F a, F b, F then, F otherwise) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), otherwise, then);
  }
  static F Range(F inside, F outside, int low, int high) {
    return _mm512_mask_blend_ps(Below(high) & ~Below(low), outside, inside);
  }
  static F Round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT); }
  static F ScaleByPowerOf2(F a, F n) { return _mm512_scalef_ps(a, n); }

  static float First(F a) { return _mm512_cvtss_f32(a); }
  static F SwapPairs(F a) { return _mm512_permute_ps(a, 0xb1); }

  static void Transpose(F* r) {
    __m512 t[16];
    for (int i = 0; i < 16; i += 4) Transpose4(r + i, t + i);
    // t[4 i + j] holds, in each quarter q, rows 4 i .. 4 i + 3 of column 4 q + j.
    for (int j = 0; j < 4; ++j) {
      const __m512 a = _mm512_shuffle_f32x4(t[j], t[4 + j], 0x88);
      const __m512 b = _mm512_shuffle_f32x4(t[8 + j], t[12 + j], 0x88);
      const __m512 c = _mm512_shuffle_f32x4(t[j], t[4 + j], 0xdd);
      const __m512 d = _mm512_shuffle_f32x4(t[8 + j], t[12 + j], 0xdd);
      r[j] = _mm512_shuffle_f32x4(a, b, 0x88);
      r[4 + j] = _mm512_shuffle_f32x4(c, d, 0x88);
      r[8 + j] = _mm512_shuffle_f32x4(a, b, 0xdd);
      r[12 + j] = _mm512_shuffle_f32x4(c, d, 0xdd);
    }
  }

  static float Sum(F a) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    return Sum4(_mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
  }
  static float Maximum(F a) { return _mm512_reduce_max_ps(a); }

 private:
  // Transposes the 4 x 4 parts in each quarter of four registers.
  static void Transpose4(const F* r, F* t) {
    const F a = _mm512_unpacklo_ps(r[0], r[1]);
    const F b = _mm512_unpackhi_ps(r[0], r[1]);
    const F c = _mm512_unpacklo_ps(r[2], r[3]);
    const F d = _mm512_unpackhi_ps(r[2], r[3]);
    t[0] = _mm512_shuffle_ps(a, c, 0x44);
    t[1] = _mm512_shuffle_ps(a, c, 0xee);
    t[2] = _mm512_shuffle_ps(b, d, 0x44);
    t[3] = _mm512_shuffle_ps(b, d, 0xee);
  }
  static __mmask16 Below(int n) {
    return n >= 16 ? 0xffff : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1);
  }
  static F Widen(__m256i v) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
  }
  // Avoids subnormal floats, which some CPUs multiply slowly.
  static F WidenF8(__m512i codes) {
    const __m512i magnitude = _mm512_and_si512(codes, _mm512_set1_epi32(0x7f));
    const F normal = _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_slli_epi32(magnitude, 20), _mm512_set1_epi32(120 << 23)));
    const F finite =
        _mm512_mask_mul_ps(normal, _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(8)),
                           _mm512_cvtepi32_ps(magnitude), _mm512_set1_ps(0x1p-9f));
    const __m512i bits = _mm512_castps_si512(finite);
    const __m512i number =
        _mm512_mask_or_epi32(bits, _mm512_cmpeq_epi32_mask(magnitude, _mm512_set1_epi32(0x7f)),
                             bits, _mm512_set1_epi32(0x7fc00000));
    const __m512i sign = _mm512_slli_epi32(_mm512_xor_si512(codes, magnitude), 24);
    return _mm512_castsi512_ps(_mm512_or_si512(number, sign));
  }
  // FloatToF8E4M3 (cc/tensor/float8.h), lane by lane.
  static __m512i NarrowF8(F v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(magnitude, 20), _mm512_set1_epi32(1));
    __m512i code = _mm512_add_epi32(magnitude, _mm512_set1_epi32(0x7ffff - 0x3c000000));
    code = _mm512_srli_epi32(_mm512_add_epi32(code, odd), 20);
    const __m512i rounded =
        _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(magnitude), _mm512_set1_ps(0x1p14f)));
    code = _mm512_mask_sub_epi32(code,
                                 _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(0x3c800000)),
                                 rounded, _mm512_set1_epi32(0x46800000));
    const auto above = [&](int32_t limit) {
      return _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(limit));
    };
    code = _mm512_mask_mov_epi32(code, above(0x43dfffff), _mm512_set1_epi32(0x7e));
    code = _mm512_mask_mov_epi32(code, above(0x7f800000), _mm512_set1_epi32(0x7f));
    return _mm512_or_si512(code, _mm512_srli_epi32(_mm512_xor_si512(bits, magnitude), 24));
  }
  static F Convert(__m128i v) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v)); }
  // Rounds to nearest even; a NaN stays NaN (its quiet bit is set).
  static __m256i Narrow(F v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __m512i chosen =
        _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), up, quiet);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(chosen, 16));
  }
  static float Sum4(__m128 a) {
    const __m128 pair = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
  }
};

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_VEC_VEC_AVX512_H_
