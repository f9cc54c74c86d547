// File: cc/ops/linear/linear_avx512_vnni_panel.h
// The tiled half of linear_avx512_vnni.cc: weight rows repacked so that one register holds 4
// elements of 16 rows, and their product with any number of rows of x.
//
// A panel is two strips of 16 weight rows; a strip is the records of its blocks in the order of
// accumulation (chain 0: blocks 0, 4, 8, ...; then chain 1, ...). A record:
//
//   8 * 64 bytes   elements 4 * q .. 4 * q + 3 of row r in bytes 64 * q + 4 * r .. + 3
//   float32[16]    scales of the rows
//   float32[16]    minima, where the format has them
//   2 * int32[16]  scales of the halves of the block, where the format has them
#ifndef PAGEMILL_CC_OPS_LINEAR_LINEAR_AVX512_VNNI_PANEL_H_
#define PAGEMILL_CC_OPS_LINEAR_LINEAR_AVX512_VNNI_PANEL_H_

#include <immintrin.h>

#include <cstdint>

#include "cc/ops/block_format/decoder_avx512_vnni.h"
#include "cc/ops/linear/int8_kernel_set.h"

#define PM_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear::vnni {

constexpr int kStripRows = 16;
constexpr int kStrips = kInt8PanelRows / kStripRows;
constexpr int kChains = 4;
constexpr int64_t kQuantBytes = 8 * 64;
constexpr int64_t kScalesAt = kQuantBytes;
constexpr int64_t kMoreAt = kQuantBytes + 64;  // minima, or scales of halves
constexpr int64_t kTileN = 6;                  // 12 integer and 12 float sums in 32 registers

template <class Decoder>
constexpr int64_t kRecordBytes = kQuantBytes +
                                 64 * (1 + Decoder::kHasMinimum + 2 * Decoder::kHasHalfScales);

// How far ahead of their use weights are requested: see kernel_set_inl.h.
constexpr int64_t kPrefetchBytes = 8192;

PM_INLINE void Prefetch(const uint8_t* from, int64_t bytes) {
  for (int64_t b = 0; b < bytes; b += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(from + b), _MM_HINT_T0);
  }
}

// Records of a strip before those of `chain`.
constexpr int64_t ChainBegin(int64_t blocks, int chain) {
  int64_t before = 0;
  for (int c = 0; c < chain; ++c) before += (blocks - c + kChains - 1) / kChains;
  return before;
}

template <class Decoder>
constexpr int64_t PanelBytes(int64_t k) {
  return kStrips * (k / 32) * kRecordBytes<Decoder>;
}

// Lane i of row r of `in` to lane r of row i of `out`, lanes of 128 bits.
PM_INLINE void TransposeLanes(const __m512i in[4], __m512i out[4]) {
  const __m512i a = _mm512_shuffle_i32x4(in[0], in[1], 0x88);
  const __m512i b = _mm512_shuffle_i32x4(in[2], in[3], 0x88);
  const __m512i c = _mm512_shuffle_i32x4(in[0], in[1], 0xdd);
  const __m512i d = _mm512_shuffle_i32x4(in[2], in[3], 0xdd);
  out[0] = _mm512_shuffle_i32x4(a, b, 0x88);
  out[1] = _mm512_shuffle_i32x4(c, d, 0x88);
  out[2] = _mm512_shuffle_i32x4(a, b, 0xdd);
  out[3] = _mm512_shuffle_i32x4(c, d, 0xdd);
}

// Within each lane of 128 bits: element i of row r of `in` to element r of row i of `out`.
PM_INLINE void TransposeInLanes(const __m512i in[4], __m512i out[4]) {
  const __m512i a = _mm512_unpacklo_epi32(in[0], in[1]);
  const __m512i b = _mm512_unpacklo_epi32(in[2], in[3]);
  const __m512i c = _mm512_unpackhi_epi32(in[0], in[1]);
  const __m512i d = _mm512_unpackhi_epi32(in[2], in[3]);
  out[0] = _mm512_unpacklo_epi64(a, b);
  out[1] = _mm512_unpackhi_epi64(a, b);
  out[2] = _mm512_unpacklo_epi64(c, d);
  out[3] = _mm512_unpackhi_epi64(c, d);
}

// Registers of 16 rows, their lane j belonging to block j, to registers q = first_q .. + 3 of the
// records of the blocks.
PM_INLINE void StoreQuants(const __m512i rows[kStripRows], uint8_t* const records[4], int blocks,
                           int first_q) {
  __m512i quads[4][4];  // [q][four rows], lane j belonging to block j
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    __m512i of_rows[4];
    TransposeInLanes(rows + 4 * r, of_rows);
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) quads[q][r] = of_rows[q];
  }
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    __m512i of_blocks[4];
    TransposeLanes(quads[q], of_blocks);
    for (int j = 0; j < blocks; ++j) {
      _mm512_store_si512(records[j] + 64 * (first_q + q), of_blocks[j]);
    }
  }
}

// Element 4 * j + r of values[i] belongs to block j of row 4 * i + r.
PM_INLINE void StoreScales(const __m512i values[4], uint8_t* const records[4], int blocks,
                           int64_t at) {
  __m512i of_blocks[4];
  TransposeLanes(values, of_blocks);
  for (int j = 0; j < blocks; ++j) _mm512_store_si512(records[j] + at, of_blocks[j]);
}

template <class Decoder, bool kFull>
PM_INLINE void PackGroup(const uint8_t* const rows[kStripRows], int64_t group, int blocks,
                         uint8_t* const records[4]) {
  __m512i a[kStripRows], b[kStripRows];
  __m512i scales[4], minima[4], a_scales[4], b_scales[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    ByteGroup g;
    Decoder::template Decode<kFull>(rows + 4 * i, group, blocks, &g);
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      a[4 * i + r] = g.a[r];
      b[4 * i + r] = g.b[r];
    }
    scales[i] = _mm512_castps_si512(g.scale);
    if constexpr (Decoder::kHasMinimum) minima[i] = _mm512_castps_si512(g.minimum);
    if constexpr (Decoder::kHasHalfScales) {
      a_scales[i] = g.a_scale;
      b_scales[i] = g.b_scale;
    }
  }
  StoreQuants(a, records, blocks, 0);
  StoreQuants(b, records, blocks, 4);
  StoreScales(scales, records, blocks, kScalesAt);
  if constexpr (Decoder::kHasMinimum) StoreScales(minima, records, blocks, kMoreAt);
  if constexpr (Decoder::kHasHalfScales) {
    StoreScales(a_scales, records, blocks, kMoreAt);
    StoreScales(b_scales, records, blocks, kMoreAt + 64);
  }
}

// Rows past m_end repeat the last one.
template <class Decoder>
void PackPanel(const Operands& o, int64_t m_begin, int64_t m_end, uint8_t* panel) {
  constexpr int64_t kRecord = kRecordBytes<Decoder>;
  const int64_t blocks = o.k / 32;
  const int64_t groups = o.k / kGroupElements;
  const int left = static_cast<int>(blocks % 4);
  for (int s = 0; s < kStrips; ++s, panel += blocks * kRecord) {
    const uint8_t* rows[kStripRows];
    for (int r = 0; r < kStripRows; ++r) {
      const int64_t m = m_begin + s * kStripRows + r;
      rows[r] = o.weights + (m < m_end ? m : m_end - 1) * o.weight_stride;
    }
    uint8_t* records[4];
    for (int j = 0; j < 4; ++j) records[j] = panel + ChainBegin(blocks, j) * kRecord;
    const uint8_t* ahead = rows[0] + kPrefetchBytes;
    for (int64_t g = 0; g < groups; ++g) {
      Prefetch(ahead, kStripRows * Decoder::kGroupBytes);
      ahead += kStripRows * Decoder::kGroupBytes;
      PackGroup<Decoder, true>(rows, g, 4, records);
      for (uint8_t*& record : records) record += kRecord;
    }
    if (left > 0) PackGroup<Decoder, false>(rows, groups, left, records);
  }
}

PM_INLINE __m512i BroadcastQuad(const uint8_t* from) {
  int32_t bits;
  __builtin_memcpy(&bits, from, sizeof(bits));
  return _mm512_set1_epi32(bits);
}

PM_INLINE __m512 BroadcastFloat(const uint8_t* from) {
  return _mm512_castsi512_ps(BroadcastQuad(from));
}

// Products with upper planes, raised above those with lower planes to come, and `start`.
PM_INLINE __m512i Raise(__m512i upper, __m512i start) {
  return _mm512_add_epi32(_mm512_slli_epi32(upper, 7), start);
}

// sums[n][s] += 16 elements of block `j` of a group of x (at `x`) times those of two records.
template <int kN>
PM_INLINE void MultiplyHalf(const uint8_t* const x[kN], const uint8_t* const w[kStrips],
                            __m512i sums[kN][kStrips]) {
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    const __m512i first = _mm512_load_si512(w[0] + 64 * q);
    const __m512i second = _mm512_load_si512(w[1] + 64 * q);
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) {
      const __m512i quad = BroadcastQuad(x[n] + 4 * q);
      sums[n][0] = _mm512_dpbusd_epi32(sums[n][0], first, quad);
      sums[n][1] = _mm512_dpbusd_epi32(sums[n][1], second, quad);
    }
  }
}

// The sums of kHalves halves of a block from half `first` on, both planes of x; from the integer
// of that half at bytes 192 of x on, or from 0.
template <int kPlanes, int kN, int kHalves, bool kHasStart>
PM_INLINE void MultiplyPlanes(const uint8_t* const x[kN], int first,
                              const uint8_t* const w[kStrips], __m512i sums[kN][kStrips]) {
#pragma GCC unroll 2
  for (int plane = 0; plane < kPlanes; ++plane) {
    const bool last = plane == kPlanes - 1;
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) {
      const __m512i start =
          kHasStart && last ? BroadcastQuad(x[n] + 192 + 4 * first) : _mm512_setzero_si512();
      sums[n][0] = plane == 0 ? start : Raise(sums[n][0], start);
      sums[n][1] = plane == 0 ? start : Raise(sums[n][1], start);
    }
#pragma GCC unroll 2
    for (int half = first; half < first + kHalves; ++half) {
      const uint8_t* half_x[kN];
      const uint8_t* const half_w[kStrips] = {w[0] + 256 * half, w[1] + 256 * half};
#pragma GCC unroll 8
      for (int n = 0; n < kN; ++n) half_x[n] = x[n] + 64 * half + kLowerPlaneOfX * plane;
      MultiplyHalf<kN>(half_x, half_w, sums);
    }
  }
}

// The integer products of a block: `x` is at lane j of its group, `w` at two records.
template <class Decoder, int kPlanes, int kN>
PM_INLINE void MultiplyBlock(const uint8_t* const x[kN], const uint8_t* const w[kStrips],
                             __m512i sums[kN][kStrips]) {
  constexpr int kHalves = Decoder::kHasHalfScales ? 1 : 2;  // of which the first sums are
  MultiplyPlanes<kPlanes, kN, kHalves, !Decoder::kHasMinimum>(x, 0, w, sums);
  if constexpr (Decoder::kHasHalfScales) {
    __m512i others[kN][kStrips];
    MultiplyPlanes<kPlanes, kN, 1, true>(x, 1, w, others);
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) {
#pragma GCC unroll 2
      for (int s = 0; s < kStrips; ++s) {
        sums[n][s] = _mm512_add_epi32(
            _mm512_mullo_epi32(sums[n][s], _mm512_load_si512(w[s] + kMoreAt)),
            _mm512_mullo_epi32(others[n][s], _mm512_load_si512(w[s] + kMoreAt + 64)));
      }
    }
  }
}

// One chain of kN rows of x times 32 weight rows.
template <class Decoder, int kPlanes, int kN>
PM_INLINE void MultiplyChain(const Int8Operands& o, const uint8_t* panel, int64_t n, int chain,
                             __m512 sums[kN][kStrips]) {
  const int64_t blocks = o.call.k / 32;
  const uint8_t* x[kN];
  const uint8_t* w[kStrips];
#pragma GCC unroll 8
  for (int i = 0; i < kN; ++i) {
    x[i] = o.x + (n + i) * o.x_stride_bytes + 16 * chain;
    sums[i][0] = sums[i][1] = _mm512_setzero_ps();
  }
  w[0] = panel + ChainBegin(blocks, chain) * kRecordBytes<Decoder>;
  w[1] = w[0] + blocks * kRecordBytes<Decoder>;
  for (int64_t b = chain; b < blocks; b += kChains) {
    __m512i products[kN][kStrips];
    MultiplyBlock<Decoder, kPlanes, kN>(x, w, products);
#pragma GCC unroll 8
    for (int i = 0; i < kN; ++i) {
      const __m512 x_scale = BroadcastFloat(x[i] + 128);
#pragma GCC unroll 2
      for (int s = 0; s < kStrips; ++s) {
        const __m512 scale = _mm512_mul_ps(_mm512_load_ps(w[s] + kScalesAt), x_scale);
        sums[i][s] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products[i][s]), scale, sums[i][s]);
        if constexpr (Decoder::kHasMinimum) {
          sums[i][s] = _mm512_fmadd_ps(_mm512_load_ps(w[s] + kMoreAt), BroadcastFloat(x[i] + 192),
                                       sums[i][s]);
        }
      }
      x[i] += GroupBytesOfX(kPlanes);
    }
    w[0] += kRecordBytes<Decoder>;
    w[1] += kRecordBytes<Decoder>;
  }
}

template <class Decoder, int kPlanes, int kN>
void MultiplyStrip(const Int8Operands& o, const uint8_t* panel, int64_t m_begin, int64_t m_end,
                   int64_t n) {
  __m512 totals[kN][kStrips];
  for (int chain = 0; chain < kChains; ++chain) {
    __m512 sums[kN][kStrips];
    MultiplyChain<Decoder, kPlanes, kN>(o, panel, n, chain, sums);
#pragma GCC unroll 8
    for (int i = 0; i < kN; ++i) {
#pragma GCC unroll 2
      for (int s = 0; s < kStrips; ++s) {
        totals[i][s] = chain == 0 ? sums[i][s] : _mm512_add_ps(totals[i][s], sums[i][s]);
      }
    }
  }
  for (int s = 0; s < kStrips; ++s) {
    const int64_t m = m_begin + s * kStripRows;
    if (m >= m_end) break;
    const int64_t rows = m_end - m;
    const __mmask16 used =
        rows >= kStripRows ? __mmask16{0xffff} : static_cast<__mmask16>((1u << rows) - 1u);
    const __m512 bias =
        o.call.bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(used, o.call.bias + m);
    for (int i = 0; i < kN; ++i) {
      const __m512 y = o.call.bias == nullptr ? totals[i][s] : _mm512_add_ps(totals[i][s], bias);
      _mm512_mask_storeu_ps(o.call.y + (n + i) * o.call.y_stride + m, used, y);
    }
  }
}

// The strip of `count` rows of x, 1 <= count <= kN.
template <class Decoder, int kPlanes, int kN>
PM_INLINE void MultiplyStripOf(const Int8Operands& o, const uint8_t* panel, int64_t m_begin,
                               int64_t m_end, int64_t n, int64_t count) {
  if constexpr (kN > 1) {
    if (count < kN) {
      return MultiplyStripOf<Decoder, kPlanes, kN - 1>(o, panel, m_begin, m_end, n, count);
    }
  }
  MultiplyStrip<Decoder, kPlanes, kN>(o, panel, m_begin, m_end, n);
}

// Strips of nearly equal height, so that none is much less efficient than the others.
template <class Decoder, int kPlanes>
void MultiplyPanel(const Int8Operands& o, const uint8_t* panel, int64_t m_begin, int64_t m_end) {
  const int64_t strips = (o.call.n + kTileN - 1) / kTileN;
  for (int64_t s = 0; s < strips; ++s) {
    const int64_t begin = s * o.call.n / strips;
    const int64_t end = (s + 1) * o.call.n / strips;
    MultiplyStripOf<Decoder, kPlanes, kTileN>(o, panel, m_begin, m_end, begin, end - begin);
  }
}

}  // namespace pagemill::ops::linear::vnni

#undef PM_INLINE

#endif  // PAGEMILL_CC_OPS_LINEAR_LINEAR_AVX512_VNNI_PANEL_H_
