// File: cc/ops/linear/block_kernels/packed_blocks_avx2.h
// Slices of block formats (packed_blocks.h) in registers of 32 bytes, and rows of x quantized for
// them. For files compiled for AVX2 and more only: everything has internal linkage.
//
// A 64-byte register of a slice is two 32-byte registers: "column" c is weight rows 8 c .. 8 c + 7,
// one 32-bit lane each, with an element per byte.
#ifndef PAGEMILL_CC_OPS_LINEAR_BLOCK_KERNELS_PACKED_BLOCKS_AVX2_H_
#define PAGEMILL_CC_OPS_LINEAR_BLOCK_KERNELS_PACKED_BLOCKS_AVX2_H_

#include <immintrin.h>

#include <cstdint>

#include "cc/ops/linear/block_kernels/block_walk_inl.h"
#include "cc/ops/linear/packed_blocks.h"
#include "cc/ops/linear/quantized_activations.h"
#include "cc/tensor/dtype.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {
namespace {

constexpr int kColumns = 4;
constexpr int64_t kColumnRows = kSliceRows / kColumns;

PAGEMILL_INLINE __m256i Load(const uint8_t* from) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
}

PAGEMILL_INLINE __m256i Broadcast(const uint8_t* from) { return _mm256_set1_epi32(ReadInt(from)); }

PAGEMILL_INLINE __m256 BroadcastFloat(const uint8_t* from) {
  return _mm256_castsi256_ps(Broadcast(from));
}

PAGEMILL_INLINE __m256 LoadF16(const uint8_t* from) {
  return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(from)));
}

PAGEMILL_INLINE __m256 LoadBf16(const uint8_t* from) {
  const __m128i bits = _mm_load_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

PAGEMILL_INLINE __m128i LoadBytes(const uint8_t* from) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
}

// v << shift, or >> if shift is negative; bits of neighbouring bytes are shifted in.
PAGEMILL_INLINE __m256i Shift(__m256i v, int shift) {
  return shift >= 0 ? _mm256_slli_epi16(v, shift) : _mm256_srli_epi16(v, -shift);
}

// Bits of quad q in the registers of a half at `field`, kBits per quad, moved to bit `to`.
template <int kBits>
PAGEMILL_INLINE __m256i BitsOf(const uint8_t* field, int half, int q, int to) {
  constexpr int kPerRegister = 8 / kBits;
  const __m256i bits = Load(field + (half * (kQuads / kPerRegister) + q / kPerRegister) * 64);
  const __m256i mask = _mm256_set1_epi8(static_cast<char>(((1 << kBits) - 1) << to));
  return _mm256_and_si256(Shift(bits, to - kBits * (q % kPerRegister)), mask);
}

// The values of quad q of column c of a record.
template <DType kDType>
PAGEMILL_INLINE __m256i Values(const uint8_t* record, int c, int q) {
  const int half = c / 2;
  const uint8_t* at = record + c % 2 * 32;
  if constexpr (kDType == DType::kQ8_0) return Load(at + (half * kQuads + q) * 64);
  const uint8_t* const high = at + BlockTraits<kDType>::kLayout.high_bits;
  if constexpr (kDType == DType::kQ3_K) {
    return _mm256_or_si256(BitsOf<2>(at, half, q, 0), BitsOf<1>(high, half, q, 2));
  }
  const __m256i both = Load(at + (half * 4 + q % 4) * 64);
  const __m256i nibble =
      _mm256_and_si256(q < 4 ? both : _mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
  if constexpr (BlockTraits<kDType>::kHasTable) {
    const auto* table = reinterpret_cast<const __m128i*>(kCodeValues<kDType>.values);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128(table)), nibble);
  }
  constexpr int kHighBits = kValueBits<kDType> - 4;
  if constexpr (kHighBits <= 0) return nibble;
  return _mm256_or_si256(nibble, BitsOf<kHighBits == 2 ? 2 : 1>(high, half, q, 4));
}

// Scales of a record, by columns.
struct Scales {
  __m256 scale[kColumns];
  __m256 second_scale[kColumns];
  __m256 minimum[kColumns];
  __m256i half_scales[2][kColumns];

  PAGEMILL_INLINE static void F16s(const uint8_t* from, __m256 (&out)[kColumns]) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) out[c] = LoadF16(from + 2 * kColumnRows * c);
  }
  PAGEMILL_INLINE static void Bf16s(const uint8_t* from, __m256 (&out)[kColumns]) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) out[c] = LoadBf16(from + 2 * kColumnRows * c);
  }
  PAGEMILL_INLINE static void Products(const uint8_t* head, const uint8_t* bytes,
                                       __m256 (&out)[kColumns]) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      const __m256i factors = _mm256_cvtepu8_epi32(LoadBytes(bytes + kColumnRows * c));
      out[c] = _mm256_mul_ps(LoadF16(head + 2 * kColumnRows * c), _mm256_cvtepi32_ps(factors));
    }
  }
  PAGEMILL_INLINE static void Integers(const uint8_t* from, __m256i (&out)[kColumns]) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      out[c] = _mm256_cvtepi8_epi32(LoadBytes(from + kColumnRows * c));
    }
  }
};

}  // namespace
}  // namespace pagemill::ops::linear

#undef PAGEMILL_INLINE

#endif  // PAGEMILL_CC_OPS_LINEAR_BLOCK_KERNELS_PACKED_BLOCKS_AVX2_H_
