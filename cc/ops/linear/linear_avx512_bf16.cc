// `linear` with bf16 weights and x rounded to bf16, by VDPBF16PS: two elements of k of 16 outputs
// at a time. Slices are those of packed_bf16.h.
//
// A chunk of x is divided into tiles of nearly equal heights, at most kTileN rows; a tile is
//
//   [pairs of elements of k][rows, up to a multiple of 4][2 elements] bf16
//
// padded with zeros. Order of accumulation: one chain per output, pairs of k ascending, part after
// part, then the bias. VDPBF16PS adds the product of the odd element first.

// GCC 12 warns of the deliberately undefined registers inside its own intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <immintrin.h>

#include <cstdint>

#include "cc/ops/linear/packed_bf16.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/row_tiles.h"
#include "cc/ops/linear/weight_prefetch.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {
namespace {

constexpr int kTileN = 12;  // 24 sums, 2 registers of weights and one of x
constexpr int64_t kMaxChunkRows = 8 * kTileN;
constexpr int64_t kPrefetchBytes = 8192;

PAGEMILL_INLINE int64_t PaddedPairs(int64_t k) {
  return (k + kPaddedElements - 1) / kPaddedElements * kPaddedElements / 2;
}

// Bytes between pairs of elements of a tile of x.
PAGEMILL_INLINE int64_t TilePairBytes(int64_t rows) { return (rows + 3) / 4 * 4 * kPairBytes; }

// Rows [begin, end) of a chunk and their place in it.
struct TileOfX {
  int64_t begin;
  int64_t end;
  int64_t offset;
};

// Calls f(tile) for each tile of a chunk; returns the bytes of the chunk.
template <class F>
PAGEMILL_INLINE int64_t ForEachTile(int64_t n, int64_t k, const F& f) {
  const int64_t tiles = (n + kTileN - 1) / kTileN;
  int64_t offset = 0;
  for (int64_t t = 0; t < tiles; ++t) {
    const TileOfX tile = {t * n / tiles, (t + 1) * n / tiles, offset};
    f(tile);
    offset += PaddedPairs(k) * TilePairBytes(tile.end - tile.begin);
  }
  return offset;
}

int64_t ChunkBytes(DType, int64_t n, int64_t k) {
  return ForEachTile(n, k, [](const TileOfX&) {});
}

// The first `count` floats at `from`, then zeros; count may be out of 0..16.
PAGEMILL_INLINE __m512 LoadUpTo(const float* from, int64_t count) {
  if (count >= 16) return _mm512_loadu_ps(from);
  const uint32_t bits = count <= 0 ? 0u : (1u << count) - 1u;
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>(bits), from);
}

// kPaddedElements elements of four rows from `at`, rounded; rows past the last are zeros. Then pair
// 4 * i + j of the rows is lane i of quads[j].
PAGEMILL_INLINE void RoundFourRows(const InputRows& x, int64_t row, int64_t end, int64_t at,
                                   __m512i quads[4]) {
  __m512i rounded[4];
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    rounded[r] = _mm512_setzero_si512();
    if (row + r >= end) continue;
    const float* const from = x.rows + (row + r) * x.stride + at;
    const __m512 low = LoadUpTo(from, x.k - at);
    const __m512 high = LoadUpTo(from + 16, x.k - at - 16);
    rounded[r] = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
  }
  const __m512i a = _mm512_unpacklo_epi32(rounded[0], rounded[1]);
  const __m512i b = _mm512_unpackhi_epi32(rounded[0], rounded[1]);
  const __m512i c = _mm512_unpacklo_epi32(rounded[2], rounded[3]);
  const __m512i d = _mm512_unpackhi_epi32(rounded[2], rounded[3]);
  quads[0] = _mm512_unpacklo_epi64(a, c);
  quads[1] = _mm512_unpackhi_epi64(a, c);
  quads[2] = _mm512_unpacklo_epi64(b, d);
  quads[3] = _mm512_unpackhi_epi64(b, d);
}

void Prepare(DType, const InputRows& x, uint8_t* chunk) {
  ForEachTile(x.n, x.k, [&](const TileOfX& tile) {
    const int64_t pair_bytes = TilePairBytes(tile.end - tile.begin);
    for (int64_t row = tile.begin; row < tile.end; row += 4) {
      if (!x.Prepares(row)) continue;
      uint8_t* to = chunk + tile.offset + (row - tile.begin) * kPairBytes;
      for (int64_t at = 0; at < x.k; at += kPaddedElements, to += 16 * pair_bytes) {
        __m512i quads[4];
        RoundFourRows(x, row, tile.end, at, quads);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
          const auto store = [&](int pair, __m128i rows) {
            _mm_store_si128(reinterpret_cast<__m128i*>(to + pair * pair_bytes), rows);
          };
          store(j, _mm512_castsi512_si128(quads[j]));
          store(4 + j, _mm512_extracti32x4_epi32(quads[j], 1));
          store(8 + j, _mm512_extracti32x4_epi32(quads[j], 2));
          store(12 + j, _mm512_extracti32x4_epi32(quads[j], 3));
        }
      }
    }
  });
}

PAGEMILL_INLINE void Store(__m512 sums, const float* bias, __mmask16 used, float* y) {
  if (bias != nullptr) sums = _mm512_add_ps(sums, _mm512_maskz_loadu_ps(used, bias));
  _mm512_mask_storeu_ps(y, used, sums);
}

PAGEMILL_INLINE void Prefetch(const void* from) {
  _mm_prefetch(static_cast<const char*>(from), _MM_HINT_T0);
}

// Prefetches a line of `range` to L2, since the next products still need L1.
PAGEMILL_INLINE void PrefetchLine(PrefetchRange& range) {
  if (range.begin >= range.end) return;
  _mm_prefetch(reinterpret_cast<const char*>(range.begin), _MM_HINT_T1);
  range.begin += 64;
}

// Initial sums of a tile; prefetches those of the next tile.
template <int kN>
PAGEMILL_INLINE void LoadSums(const PackedProduct& o, const TileOfX& tile, __m512 sums[kN][2]) {
  const uint32_t used = o.m >= kSliceRows ? ~0u : (1u << o.m) - 1u;
  const float* y = o.y + tile.begin * o.y_stride;
#pragma GCC unroll 12
  for (int n = 0; n < kN; ++n, y += o.y_stride) {
    sums[n][0] = _mm512_maskz_loadu_ps(static_cast<__mmask16>(used), y);
    sums[n][1] = _mm512_maskz_loadu_ps(static_cast<__mmask16>(used >> 16), y + 16);
  }
  const int64_t next = o.n - tile.end < kN ? o.n - tile.end : kN;
  for (int64_t n = 0; n < next; ++n, y += o.y_stride) {
    Prefetch(y);
    Prefetch(y + 16);
  }
}

// Multiplies the kN rows of x of `tile` with the slice. kFirst: the slice is read for the first
// time. kPart: k is divided.
template <int kN, bool kFirst, bool kPart>
PAGEMILL_INLINE void MultiplyTile(const PackedProduct& o, const TileOfX& tile,
                                  PrefetchRange prefetch[2]) {
  const uint8_t* w = o.weights;
  const uint8_t* x = o.activations + tile.offset;
  __m512 sums[kN][2];
#pragma GCC unroll 12
  for (int n = 0; n < kN; ++n) sums[n][0] = sums[n][1] = _mm512_setzero_ps();
  if (kPart && o.adds) LoadSums<kN>(o, tile, sums);
  const int64_t pairs = PaddedPairs(o.k);
#pragma GCC unroll 4
  for (int64_t pair = 0; pair < pairs; ++pair) {
    if (kPart && pair % 4 == 0) {
      PrefetchLine(prefetch[0]);
      PrefetchLine(prefetch[1]);
    }
    if constexpr (kFirst) {
      PrefetchWeights(w + kPrefetchBytes);
      PrefetchWeights(w + kPrefetchBytes + 64);
    }
    const auto w0 = reinterpret_cast<__m512bh>(_mm512_load_si512(w));
    const auto w1 = reinterpret_cast<__m512bh>(_mm512_load_si512(w + 64));
#pragma GCC unroll 12
    for (int n = 0; n < kN; ++n) {
      int32_t elements;
      __builtin_memcpy(&elements, x + n * kPairBytes, kPairBytes);
      const auto both = reinterpret_cast<__m512bh>(_mm512_set1_epi32(elements));
      sums[n][0] = _mm512_dpbf16_ps(sums[n][0], w0, both);
      sums[n][1] = _mm512_dpbf16_ps(sums[n][1], w1, both);
    }
    w += kSlicePairBytes;
    x += TilePairBytes(kN);
  }
  const uint32_t used = o.m >= kSliceRows ? ~0u : (1u << o.m) - 1u;
  float* y = o.y + tile.begin * o.y_stride;
#pragma GCC unroll 12
  for (int n = 0; n < kN; ++n, y += o.y_stride) {
    Store(sums[n][0], o.bias, static_cast<__mmask16>(used), y);
    if (o.m <= 16) continue;
    Store(sums[n][1], o.bias == nullptr ? nullptr : o.bias + 16, static_cast<__mmask16>(used >> 16),
          y + 16);
  }
}

template <bool kPart>
void MultiplyTiles(const PackedProduct& o) {
  PrefetchRange prefetch[2] = {o.prefetch[0], o.prefetch[1]};
  ForEachTile(o.n, o.k, [&](const TileOfX& tile) {
    WithRows<kTileN>(tile.end - tile.begin, [&]<int kN>() {
      // The slice comes from memory once, for the first rows.
      if (tile.begin == 0) return MultiplyTile<kN, true, kPart>(o, tile, prefetch);
      MultiplyTile<kN, false, kPart>(o, tile, prefetch);
    });
  });
}

void Multiply(const PackedProduct& o) {
  if (o.adds || o.prefetch[0].begin != nullptr) return MultiplyTiles<true>(o);
  MultiplyTiles<false>(o);
}

}  // namespace

constinit const PackedGemm kAvx512Bf16Kernels = {.max_chunk_rows = kMaxChunkRows,
                                                 .slice_bytes = Bf16SliceBytes,
                                                 .pack = PackBf16Slice,
                                                 .chunk_bytes = ChunkBytes,
                                                 .prepare = Prepare,
                                                 .multiply = Multiply,
                                                 .part_multiple = kPaddedElements};

}  // namespace pagemill::ops::linear
