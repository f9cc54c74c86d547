// `linear` with block-format weights in panels (block_panel.h) and activations quantized to
// integers (block_strip.h), multiplied by VPDPBUSD.

// GCC 12 warns of the deliberately undefined registers inside its own intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <immintrin.h>

#include <cstdint>

#include "cc/ops/linear/block_panel.h"
#include "cc/ops/linear/block_strip.h"
#include "cc/ops/linear/packed_kernel_set.h"

#define PM_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {
namespace {

// A strip of 32 rows of 576 elements takes 43 KB: it stays in L1 while panels pass by.
constexpr int64_t kMaxStripRows = 32;
// How far ahead of their use weights are requested.
constexpr int64_t kPrefetchBytes = 4096;
constexpr int kHalves = 2;

// What a register block needs of a record: values of quad q of half h, and per half of the rows
// scales and minima.
struct Weights {
  __m512i values[kHalves][kQuads];
  __m512 scale[kHalves];
  __m512 minimum[kHalves];
  __m512i half_scales[kHalves][2];
};

PM_INLINE __m512i Load(const uint8_t* from) { return _mm512_load_si512(from); }

PM_INLINE __m512 LoadF16(const uint8_t* from) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(from)));
}

PM_INLINE __m512 LoadU8(const uint8_t* from) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(from))));
}

PM_INLINE __m512i LoadS8(const uint8_t* from) {
  return _mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(from)));
}

// v << kShift, or >> where it is negative; bits of neighbouring bytes come along.
template <int kShift>
PM_INLINE __m512i Shift(__m512i v) {
  if constexpr (kShift > 0) return _mm512_slli_epi16(v, kShift);
  if constexpr (kShift < 0) return _mm512_srli_epi16(v, -kShift);
  return v;
}

// to | (from & mask)
PM_INLINE __m512i OrMasked(__m512i to, __m512i from, __m512i mask) {
  return _mm512_ternarylogic_epi64(to, from, mask, 0xf8);
}

// Quads kQ and up of the bits above the nibbles: kBits of them at bit kBits * (q % per register).
template <int kBits, int kQ>
PM_INLINE void AddHighBits(const uint8_t* field, __m512i values[kQuads]) {
  if constexpr (kQ < kQuads) {
    constexpr int kPerRegister = 8 / kBits;
    const __m512i bits = Load(field + kQ / kPerRegister * 64);
    const __m512i mask = _mm512_set1_epi8(kBits == 1 ? 0x10 : 0x30);
    values[kQ] = OrMasked(values[kQ], Shift<4 - kBits*(kQ % kPerRegister)>(bits), mask);
    AddHighBits<kBits, kQ + 1>(field, values);
  }
}

template <DType kDType>
PM_INLINE void DecodeValues(const uint8_t* record, int half, __m512i values[kQuads]) {
  if constexpr (kDType == DType::kQ8_0) {
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; ++q) values[q] = Load(record + (half * kQuads + q) * 64);
  } else {
    const __m512i nibble = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      const __m512i both = Load(record + (half * 4 + q) * 64);
      values[q] = _mm512_and_si512(both, nibble);
      values[q + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
    }
  }
  constexpr int64_t kHighBits = BlockTraits<kDType>::kLayout.high_bits;
  if constexpr (kDType == DType::kQ5_0 || kDType == DType::kQ5_K) {
    AddHighBits<1, 0>(record + kHighBits + half * 64, values);
  } else if constexpr (kDType == DType::kQ6_K) {
    AddHighBits<2, 0>(record + kHighBits + half * 128, values);
  }
}

template <DType kDType>
PM_INLINE void DecodeScales(const uint8_t* head, const uint8_t* record, int half, Weights* w) {
  constexpr BlockPanelLayout kLayout = BlockTraits<kDType>::kLayout;
  const int64_t row = half * kPanelHalfRows;
  if constexpr (kDType == DType::kQ6_K) {
    w->scale[half] = LoadF16(head + 2 * row);
    w->half_scales[half][0] = LoadS8(record + kLayout.scales + row);
    w->half_scales[half][1] = LoadS8(record + kLayout.scales + kPanelRows + row);
  } else if constexpr (BlockTraits<kDType>::kHasHead) {
    w->scale[half] = _mm512_mul_ps(LoadF16(head + 2 * row), LoadU8(record + kLayout.scales + row));
    w->minimum[half] =
        _mm512_mul_ps(LoadF16(head + 64 + 2 * row), LoadU8(record + kLayout.minima + row));
  } else {
    w->scale[half] = LoadF16(record + kLayout.scales + 2 * row);
    if constexpr (BlockTraits<kDType>::kHasMinimum) {
      w->minimum[half] = LoadF16(record + kLayout.minima + 2 * row);
    }
  }
}

template <DType kDType>
PM_INLINE void Decode(const uint8_t* head, const uint8_t* record, Weights* w) {
#pragma GCC unroll 2
  for (int half = 0; half < kHalves; ++half) {
    DecodeValues<kDType>(record, half, w->values[half]);
    DecodeScales<kDType>(head, record, half, w);
  }
}

PM_INLINE __m512i Broadcast(const uint8_t* from) {
  int32_t bits;
  __builtin_memcpy(&bits, from, sizeof(bits));
  return _mm512_set1_epi32(bits);
}

PM_INLINE __m512 BroadcastFloat(const uint8_t* from) {
  return _mm512_castsi512_ps(Broadcast(from));
}

// Rows of x whose sums are worked on together: 8 chains of products hide their latency.
template <int kPlanes>
constexpr int kRowsAtOnce = 4 / kPlanes;

template <int kRows>
using Sums = __m512i[kRows][kHalves];

// Sums of quads [kFirst, kFirst + kCount) of a block of kRows rows of x times both halves, from
// the integer at `start` of each row on, or from 0.
template <int kPlanes, int kRows, int kFirst, int kCount, bool kHasStart>
PM_INLINE void MultiplyQuads(const Weights& w, const uint8_t* x, int64_t start, Sums<kRows>& sums) {
  constexpr int64_t kX = kXRecordBytes<kPlanes>;
  __m512i upper[kRows][kHalves];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      sums[r][h] = kHasStart ? Broadcast(x + r * kX + start) : _mm512_setzero_si512();
      upper[r][h] = _mm512_setzero_si512();
    }
  }
#pragma GCC unroll 8
  for (int q = kFirst; q < kFirst + kCount; ++q) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m512i quad = Broadcast(x + r * kX + 4 * q);
      if constexpr (kPlanes == 1) {
        sums[r][0] = _mm512_dpbusd_epi32(sums[r][0], w.values[0][q], quad);
        sums[r][1] = _mm512_dpbusd_epi32(sums[r][1], w.values[1][q], quad);
      } else {
        const __m512i lower = Broadcast(x + r * kX + 32 + 4 * q);
        upper[r][0] = _mm512_dpbusd_epi32(upper[r][0], w.values[0][q], quad);
        upper[r][1] = _mm512_dpbusd_epi32(upper[r][1], w.values[1][q], quad);
        sums[r][0] = _mm512_dpbusd_epi32(sums[r][0], w.values[0][q], lower);
        sums[r][1] = _mm512_dpbusd_epi32(sums[r][1], w.values[1][q], lower);
      }
    }
  }
  if constexpr (kPlanes == 1) return;
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      sums[r][h] = _mm512_add_epi32(_mm512_slli_epi32(upper[r][h], 7), sums[r][h]);
    }
  }
}

// Adds a block of kRows rows of x to their 32 outputs each.
template <DType kDType, int kPlanes, int kRows>
PM_INLINE void AddBlock(const Weights& w, const uint8_t* x, __m512 (*y)[kHalves]) {
  using F = BlockTraits<kDType>;
  constexpr int64_t kX = kXRecordBytes<kPlanes>;
  constexpr int64_t kAt = kOffsetAt<kPlanes>;
  Sums<kRows> sums;
  if constexpr (F::kHasHalfScales) {
    Sums<kRows> others;
    MultiplyQuads<kPlanes, kRows, 0, 4, true>(w, x, kAt, sums);
    MultiplyQuads<kPlanes, kRows, 4, 4, true>(w, x, kAt + 4, others);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) {
        sums[r][h] = _mm512_add_epi32(_mm512_mullo_epi32(sums[r][h], w.half_scales[h][0]),
                                      _mm512_mullo_epi32(others[r][h], w.half_scales[h][1]));
      }
    }
  } else {
    MultiplyQuads<kPlanes, kRows, 0, kQuads, !F::kHasMinimum>(w, x, kAt, sums);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const __m512 x_scale = BroadcastFloat(x + r * kX + kScaleAt<kPlanes>);
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      y[r][h] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r][h]), _mm512_mul_ps(w.scale[h], x_scale),
                                y[r][h]);
      if constexpr (F::kHasMinimum) {
        y[r][h] = _mm512_fmadd_ps(w.minimum[h], BroadcastFloat(x + r * kX + kAt), y[r][h]);
      }
    }
  }
}

// The outputs of row n of the strip.
PM_INLINE void StoreRow(const PackedProduct& p, int64_t n, const __m512 sums[kHalves]) {
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; ++h) {
    const int64_t left = p.m - h * kPanelHalfRows;
    if (left <= 0) return;
    const __mmask16 used = left >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>((1 << left) - 1);
    const int64_t at = h * kPanelHalfRows;
    __m512 y = sums[h];
    if (p.bias != nullptr) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(used, p.bias + at));
    _mm512_mask_storeu_ps(p.y + n * p.y_stride + at, used, y);
  }
}

template <DType kDType>
PM_INLINE const uint8_t* Head(const uint8_t* panel, int64_t block) {
  constexpr BlockPanelLayout kLayout = BlockTraits<kDType>::kLayout;
  return panel + block * kLayout.record_bytes + block / kRecordsPerHead * kLayout.head_bytes -
         (BlockTraits<kDType>::kHasHead ? block % kRecordsPerHead * kLayout.record_bytes : 0);
}

template <DType kDType>
PM_INLINE const uint8_t* Record(const uint8_t* panel, int64_t block) {
  constexpr BlockPanelLayout kLayout = BlockTraits<kDType>::kLayout;
  return panel + block * kLayout.record_bytes + (block / kRecordsPerHead + 1) * kLayout.head_bytes;
}

template <DType kDType>
PM_INLINE void PrefetchRecord(const uint8_t* record) {
  for (int64_t i = 0; i < BlockTraits<kDType>::kLayout.record_bytes; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(record + i), _MM_HINT_T0);
  }
}

// One row of x: weights stream through registers once, sums stay there.
template <DType kDType, int kPlanes>
void MultiplyRow(const PackedProduct& p) {
  __m512 sums[kHalves] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  const int64_t blocks = p.k / kPanelBlock;
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* record = Record<kDType>(p.panel, b);
    PrefetchRecord<kDType>(record + kPrefetchBytes);
    Weights w;
    Decode<kDType>(Head<kDType>(p.panel, b), record, &w);
    AddBlock<kDType, kPlanes, 1>(w, p.strip + b * kXRecordBytes<kPlanes>, &sums);
  }
  StoreRow(p, 0, sums);
}

// Several: a block of weights is decoded once for all; sums wait in memory meanwhile.
template <DType kDType, int kPlanes>
void MultiplyRows(const PackedProduct& p) {
  __m512 sums[kMaxStripRows][kHalves];
  for (int64_t n = 0; n < p.n; ++n) sums[n][0] = sums[n][1] = _mm512_setzero_ps();
  const int64_t blocks = p.k / kPanelBlock;
  const uint8_t* x = p.strip;
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* record = Record<kDType>(p.panel, b);
    PrefetchRecord<kDType>(record + kPrefetchBytes);
    Weights w;
    Decode<kDType>(Head<kDType>(p.panel, b), record, &w);
    constexpr int kRows = kRowsAtOnce<kPlanes>;
    int64_t n = 0;
    for (; n + kRows <= p.n; n += kRows, x += kRows * kXRecordBytes<kPlanes>) {
      AddBlock<kDType, kPlanes, kRows>(w, x, sums + n);
    }
    for (; n < p.n; ++n, x += kXRecordBytes<kPlanes>) {
      AddBlock<kDType, kPlanes, 1>(w, x, sums + n);
    }
  }
  for (int64_t n = 0; n < p.n; ++n) StoreRow(p, n, sums[n]);
}

// 16 integers to bytes at `out`; of two planes, the upper ones there and the lower ones beyond.
template <int kPlanes>
PM_INLINE void StorePlanes(__m512i integers, uint8_t* out) {
  __m512i upper = integers;
  if constexpr (kPlanes == 2) {
    upper = _mm512_srai_epi32(_mm512_add_epi32(integers, _mm512_set1_epi32(64)), 7);
    const __m512i lower = _mm512_sub_epi32(integers, _mm512_slli_epi32(upper, 7));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 32), _mm512_cvtepi32_epi8(lower));
  }
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtsepi32_epi8(upper));
}

PM_INLINE void StoreFloat(uint8_t* out, float value) { __builtin_memcpy(out, &value, 4); }
PM_INLINE void StoreInt(uint8_t* out, int32_t value) { __builtin_memcpy(out, &value, 4); }

template <DType kDType, int kPlanes>
PM_INLINE void QuantizeBlock(const float* x, uint8_t* out) {
  using F = BlockTraits<kDType>;
  constexpr float kLargest = kPlanes == 1 ? 127 : 127 * 128;
  const __m512 first = _mm512_loadu_ps(x);
  const __m512 last = _mm512_loadu_ps(x + 16);
  // As integers, magnitudes are in the order of their values and NaN is above all: the scale of a
  // block with a NaN is NaN, and so are all outputs of the row.
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const __m512i largest = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(first), magnitude),
                                           _mm512_and_si512(_mm512_castps_si512(last), magnitude));
  const float top = __builtin_bit_cast(float, _mm512_reduce_max_epu32(largest));
  const bool is_zero = top < kSmallestBlock;
  const float scale = is_zero ? 0 : top * (1 / kLargest);
  const __m512 inverse = _mm512_set1_ps(is_zero ? 0 : kLargest / top);
  const __m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(first, inverse));
  const __m512i b = _mm512_cvtps_epi32(_mm512_mul_ps(last, inverse));
  StorePlanes<kPlanes>(a, out);
  StorePlanes<kPlanes>(b, out + 16);
  StoreFloat(out + kScaleAt<kPlanes>, scale);
  uint8_t* offsets = out + kOffsetAt<kPlanes>;
  if constexpr (F::kHasHalfScales) {
    StoreInt(offsets, -F::kLayout.zero_point * _mm512_reduce_add_epi32(a));
    StoreInt(offsets + 4, -F::kLayout.zero_point * _mm512_reduce_add_epi32(b));
    return;
  }
  const int32_t sum = _mm512_reduce_add_epi32(_mm512_add_epi32(a, b));
  StoreInt(offsets + 4, 0);
  if constexpr (F::kHasMinimum) {
    StoreFloat(offsets, scale * static_cast<float>(sum));
  } else {
    StoreInt(offsets, -F::kLayout.zero_point * sum);
  }
}

template <DType kDType, int kPlanes>
void PrepareRows(const InputRows& x, uint8_t* strip) {
  for (int64_t n = 0; n < x.n; ++n) {
    uint8_t* out = strip + n * kXRecordBytes<kPlanes>;
    for (int64_t k = 0; k < x.k; k += kPanelBlock, out += x.n * kXRecordBytes<kPlanes>) {
      QuantizeBlock<kDType, kPlanes>(x.rows + n * x.stride + k, out);
    }
  }
}

template <int kPlanes>
void Prepare(DType dtype, const InputRows& x, uint8_t* strip) {
  WithBlockFormat(dtype, [&]<DType kDType>() { PrepareRows<kDType, kPlanes>(x, strip); });
}

template <int kPlanes>
void Multiply(const PackedProduct& product) {
  WithBlockFormat(product.dtype, [&]<DType kDType>() {
    if (product.n == 1) {
      MultiplyRow<kDType, kPlanes>(product);
    } else {
      MultiplyRows<kDType, kPlanes>(product);
    }
  });
}

template <int kPlanes>
constexpr PackedKernelSet kKernels{kMaxStripRows,    BlockPanelBytes,
                                   PackBlockPanel,   BlockStripBytes<kPlanes>,
                                   Prepare<kPlanes>, Multiply<kPlanes>};

}  // namespace

constinit const PackedKernelSet kAvx512VnniKernels = kKernels<1>;
constinit const PackedKernelSet kAvx512VnniInt16Kernels = kKernels<2>;

}  // namespace pagemill::ops::linear
