// File: cc/ops/linear/packed_blocks_avx512.h
// Slices of block formats (packed_blocks.h) in AVX-512 registers (F, BW, DQ and VL): decoding
// before and scaling after integer products. For files compiled for these instruction sets only.
//
//   Weights w;
//   Decode<kDType>(Head<kDType>(slice, block), Record<kDType>(slice, block), &w);
#ifndef PAGEMILL_CC_OPS_LINEAR_PACKED_BLOCKS_AVX512_H_
#define PAGEMILL_CC_OPS_LINEAR_PACKED_BLOCKS_AVX512_H_

#include <immintrin.h>

#include <cstdint>

#include "cc/ops/linear/packed_blocks.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/quantized_activations.h"
#include "cc/ops/linear/weight_prefetch.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {
namespace {

constexpr int kHalves = 2;

// Decoded record: values of quad q of half h, and scales and minima of each half of the rows;
// `second_scale` is that of elements 16..31 of formats with two scales.
struct Weights {
  __m512i values[kHalves][kQuads];
  __m512 scale[kHalves];
  __m512 second_scale[kHalves];
  __m512 minimum[kHalves];
  __m512i half_scales[kHalves][2];
};

PAGEMILL_INLINE __m512i Load(const uint8_t* from) { return _mm512_load_si512(from); }

PAGEMILL_INLINE __m512 LoadF16(const uint8_t* from) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(from)));
}

PAGEMILL_INLINE __m512 LoadBf16(const uint8_t* from) {
  const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

PAGEMILL_INLINE __m512 LoadU8(const uint8_t* from) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(from))));
}

PAGEMILL_INLINE __m512i LoadS8(const uint8_t* from) {
  return _mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(from)));
}

// v << kShift, or >> if kShift is negative; bits of neighbouring bytes are shifted in.
template <int kShift>
PAGEMILL_INLINE __m512i Shift(__m512i v) {
  if constexpr (kShift > 0) return _mm512_slli_epi16(v, kShift);
  if constexpr (kShift < 0) return _mm512_srli_epi16(v, -kShift);
  return v;
}

// to | (from & mask)
PAGEMILL_INLINE __m512i OrMasked(__m512i to, __m512i from, __m512i mask) {
  return _mm512_ternarylogic_epi64(to, from, mask, 0xf8);
}

// Adds bits to quads from kQ on: kBits per quad at bit kBits * (q % quads per register), moved to
// bit kTo.
template <int kBits, int kTo, int kQ>
PAGEMILL_INLINE void AddBits(const uint8_t* field, __m512i values[kQuads]) {
  if constexpr (kQ < kQuads) {
    constexpr int kPerRegister = 8 / kBits;
    const __m512i bits = Load(field + kQ / kPerRegister * 64);
    const __m512i mask = _mm512_set1_epi8(((1 << kBits) - 1) << kTo);
    values[kQ] = OrMasked(values[kQ], Shift<kTo - kBits*(kQ % kPerRegister)>(bits), mask);
    AddBits<kBits, kTo, kQ + 1>(field, values);
  }
}

// The values of nibbles.
template <DType kDType>
PAGEMILL_INLINE __m512i LookUp(__m512i nibbles) {
  if constexpr (BlockTraits<kDType>::kHasTable) {
    const auto* table = reinterpret_cast<const __m128i*>(kCodeValues<kDType>.values);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_load_si128(table)), nibbles);
  } else {
    return nibbles;
  }
}

template <DType kDType>
PAGEMILL_INLINE void DecodeValues(const uint8_t* record, int half, __m512i values[kQuads]) {
  if constexpr (kDType == DType::kQ8_0) {
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; ++q) values[q] = Load(record + (half * kQuads + q) * 64);
  } else if constexpr (kDType == DType::kQ3_K) {
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; ++q) values[q] = _mm512_setzero_si512();
    AddBits<2, 0, 0>(record + half * 128, values);
  } else {
    const __m512i nibble = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      const __m512i both = Load(record + (half * 4 + q) * 64);
      values[q] = LookUp<kDType>(_mm512_and_si512(both, nibble));
      values[q + 4] = LookUp<kDType>(_mm512_and_si512(_mm512_srli_epi16(both, 4), nibble));
    }
  }
  constexpr int64_t kHighBits = BlockTraits<kDType>::kLayout.high_bits;
  if constexpr (kDType == DType::kQ5_0 || kDType == DType::kQ5_K) {
    AddBits<1, 4, 0>(record + kHighBits + half * 64, values);
  } else if constexpr (kDType == DType::kQ3_K) {
    AddBits<1, 2, 0>(record + kHighBits + half * 64, values);
  } else if constexpr (kDType == DType::kQ6_K) {
    AddBits<2, 4, 0>(record + kHighBits + half * 128, values);
  }
}

template <DType kDType>
PAGEMILL_INLINE void DecodeScales(const uint8_t* head, const uint8_t* record, int half,
                                  Weights* w) {
  constexpr PackedBlockLayout kLayout = BlockTraits<kDType>::kLayout;
  const int64_t row = half * kHalfSliceRows;
  if constexpr (BlockTraits<kDType>::kHasHalfScales) {
    w->scale[half] = LoadF16(head + 2 * row);
    w->half_scales[half][0] = LoadS8(record + kLayout.scales + row);
    w->half_scales[half][1] = LoadS8(record + kLayout.scales + kSliceRows + row);
  } else if constexpr (BlockTraits<kDType>::kHasHead) {
    w->scale[half] = _mm512_mul_ps(LoadF16(head + 2 * row), LoadU8(record + kLayout.scales + row));
    w->minimum[half] =
        _mm512_mul_ps(LoadF16(head + 64 + 2 * row), LoadU8(record + kLayout.minima + row));
  } else if constexpr (BlockTraits<kDType>::kHasBf16Scales) {
    w->scale[half] = LoadBf16(record + kLayout.scales + 2 * row);
  } else {
    w->scale[half] = LoadF16(record + kLayout.scales + 2 * row);
    if constexpr (BlockTraits<kDType>::kHasMinimum) {
      w->minimum[half] = LoadF16(record + kLayout.minima + 2 * row);
    }
    if constexpr (BlockTraits<kDType>::kHasTwoScales) {
      w->second_scale[half] = LoadF16(record + kLayout.scales + 2 * (kSliceRows + row));
    }
  }
}

template <DType kDType>
PAGEMILL_INLINE void Decode(const uint8_t* head, const uint8_t* record, Weights* w) {
#pragma GCC unroll 2
  for (int half = 0; half < kHalves; ++half) {
    DecodeValues<kDType>(record, half, w->values[half]);
    DecodeScales<kDType>(head, record, half, w);
  }
}

PAGEMILL_INLINE __m512i Broadcast(const uint8_t* from) {
  int32_t bits;
  __builtin_memcpy(&bits, from, sizeof(bits));
  return _mm512_set1_epi32(bits);
}

PAGEMILL_INLINE __m512 BroadcastFloat(const uint8_t* from) {
  return _mm512_castsi512_ps(Broadcast(from));
}

// Integer products of each half of the weight rows, for kRows rows of x.
template <int kRows>
using Sums = __m512i[kRows][kHalves];

// The outputs of rows of x: of consecutive rows, or of the rows that a mixed chunk lists.
struct RegistersInOrder {
  __m512 (*y)[kHalves];
  PAGEMILL_INLINE __m512* operator[](int64_t row) const { return y[row]; }
  PAGEMILL_INLINE RegistersInOrder operator+(int64_t row) const { return {y + row}; }
};

struct NamedRegisters {
  __m512 (*y)[kHalves];
  const uint8_t* rows;
  PAGEMILL_INLINE __m512* operator[](int64_t row) const { return y[rows[row]]; }
  PAGEMILL_INLINE NamedRegisters operator+(int64_t row) const { return {y, rows + row}; }
};

// Scales the integer products of a block of kRows rows of x and adds them to the 32 outputs of each
// row.
template <DType kDType, int kPlanes, int kRows, class Rows>
PAGEMILL_INLINE void AddProducts(const Weights& w, const uint8_t* x, const Sums<kRows>& sums,
                                 const Rows& y) {
  constexpr int64_t kX = kXRecordBytes<kPlanes>;
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const __m512 x_scale = BroadcastFloat(x + r * kX + kScaleAt<kPlanes>);
    __m512* const out = y[r];  // of both halves
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      out[h] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r][h]), _mm512_mul_ps(w.scale[h], x_scale),
                               out[h]);
      if constexpr (BlockTraits<kDType>::kHasMinimum) {
        out[h] =
            _mm512_fmadd_ps(w.minimum[h], BroadcastFloat(x + r * kX + kOffsetAt<kPlanes>), out[h]);
      }
    }
  }
}

// The same for a format with two scales: `first` and `second` are products of halves of the block.
template <int kPlanes, int kRows, class Rows>
PAGEMILL_INLINE void AddHalves(const Weights& w, const uint8_t* x, const Sums<kRows>& first,
                               const Sums<kRows>& second, const Rows& y) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const __m512 x_scale = BroadcastFloat(x + r * kXRecordBytes<kPlanes> + kScaleAt<kPlanes>);
    __m512* const out = y[r];
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(first[r][h]), w.scale[h]);
      const __m512 both =
          _mm512_fmadd_ps(_mm512_cvtepi32_ps(second[r][h]), w.second_scale[h], scaled);
      out[h] = _mm512_fmadd_ps(both, x_scale, out[h]);
    }
  }
}

// Mask of the existing rows of a half of the slice.
PAGEMILL_INLINE __mmask16 UsedRows(const PackedProduct& p, int half) {
  const int64_t left = p.m - half * kHalfSliceRows;
  if (left >= kHalfSliceRows) return 0xffff;
  return static_cast<__mmask16>(left <= 0 ? 0 : (1 << left) - 1);
}

// Loads the initial sums of row n of the chunk.
PAGEMILL_INLINE void LoadRow(const PackedProduct& p, int64_t n, __m512 sums[kHalves]) {
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; ++h) {
    sums[h] = _mm512_setzero_ps();
    if (!p.adds) continue;
    const float* const y = p.y + n * p.y_stride + h * kHalfSliceRows;
    sums[h] = _mm512_maskz_loadu_ps(UsedRows(p, h), y);
  }
}

// Stores the outputs of row n of the chunk.
PAGEMILL_INLINE void StoreRow(const PackedProduct& p, int64_t n, const __m512 sums[kHalves]) {
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; ++h) {
    const __mmask16 used = UsedRows(p, h);
    const int64_t at = h * kHalfSliceRows;
    __m512 y = sums[h];
    if (p.bias != nullptr) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(used, p.bias + at));
    _mm512_mask_storeu_ps(p.y + n * p.y_stride + at, used, y);
  }
}

template <DType kDType>
PAGEMILL_INLINE const uint8_t* Head(const uint8_t* slice, int64_t block) {
  constexpr PackedBlockLayout kLayout = BlockTraits<kDType>::kLayout;
  return slice + block * kLayout.record_bytes + block / kRecordsPerHead * kLayout.head_bytes -
         (BlockTraits<kDType>::kHasHead ? block % kRecordsPerHead * kLayout.record_bytes : 0);
}

template <DType kDType>
PAGEMILL_INLINE const uint8_t* Record(const uint8_t* slice, int64_t block) {
  constexpr PackedBlockLayout kLayout = BlockTraits<kDType>::kLayout;
  return slice + block * kLayout.record_bytes + (block / kRecordsPerHead + 1) * kLayout.head_bytes;
}

template <DType kDType>
PAGEMILL_INLINE void PrefetchRecord(const uint8_t* record) {
  for (int64_t i = 0; i < BlockTraits<kDType>::kLayout.record_bytes; i += 64) {
    PrefetchWeights(record + i);
  }
}

}  // namespace
}  // namespace pagemill::ops::linear

#undef PAGEMILL_INLINE

#endif  // PAGEMILL_CC_OPS_LINEAR_PACKED_BLOCKS_AVX512_H_
