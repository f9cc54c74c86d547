// File: cc/ops/linear/scaled/e4m3_vbmi.h
// f8_e4m3 widened to bf16, exactly, by lookups of bytes (AVX512-VBMI). Inline functions: for files
// compiled for AVX-512 only.
//
//   QuadOfBf16 w = WidenQuad(slice);   // four elements of k of 16 weight rows
#ifndef PAGEMILL_CC_OPS_LINEAR_SCALED_E4M3_VBMI_H_
#define PAGEMILL_CC_OPS_LINEAR_SCALED_E4M3_VBMI_H_

#include <immintrin.h>

#include <cstdint>

#include "cc/tensor/float8.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::scaled {
namespace {

struct alignas(64) CodeBytes {
  uint8_t bytes[128];
};

// Byte `byte` (0: the lower one) of the bf16 of each code without its sign.
constexpr CodeBytes BytesOfCodes(int byte) {
  CodeBytes table = {};
  for (int code = 0; code < 128; ++code) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, F8E4M3ToFloat(static_cast<uint8_t>(code)));
    table.bytes[code] = static_cast<uint8_t>(bits >> (16 + 8 * byte));
  }
  return table;
}

constexpr CodeBytes kLowerBytes = BytesOfCodes(0), kUpperBytes = BytesOfCodes(1);

// Bit 7 of codes does not count. As assembly: the file is not compiled for AVX512-VBMI, which its
// other kernels do not need.
PAGEMILL_INLINE __m512i LookUp(__m512i codes, const CodeBytes& table) {
  asm("vpermi2b %2, %1, %0"
      : "+v"(codes)
      : "v"(_mm512_load_si512(table.bytes)), "v"(_mm512_load_si512(table.bytes + 64)));
  return codes;
}

// A quad of 16 weight rows (packed_scaled.h): elements 0 and 1 of k of each row, then 2 and 3.
struct QuadOfBf16 {
  __m512i pairs[2];
};

PAGEMILL_INLINE QuadOfBf16 WidenQuad(const uint8_t* quad) {
  const __m512i codes = _mm512_load_si512(quad);
  const __m512i lower = LookUp(codes, kLowerBytes);
  // magnitude | (code & sign)
  const __m512i upper =
      _mm512_ternarylogic_epi32(LookUp(codes, kUpperBytes), codes, _mm512_set1_epi8(-128), 0xf8);
  // Lanes of 16 bits; where `first` is set the first operand, else the second.
  const __m512i first = _mm512_set1_epi16(0xff);
  return {{_mm512_ternarylogic_epi32(first, lower, _mm512_slli_epi16(upper, 8), 0xca),
           _mm512_ternarylogic_epi32(first, _mm512_srli_epi16(lower, 8), upper, 0xca)}};
}

}  // namespace
}  // namespace pagemill::ops::scaled

#undef PAGEMILL_INLINE

#endif  // PAGEMILL_CC_OPS_LINEAR_SCALED_E4M3_VBMI_H_
