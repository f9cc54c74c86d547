// `linear` with block-format weights in slices (packed_blocks.h) and activations quantized to
// integers (quantized_activations.h), multiplied by VPDPBUSD.

// GCC 12 warns of the deliberately undefined registers inside its own intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <immintrin.h>

#include <cstdint>

#include "cc/ops/linear/packed_blocks.h"
#include "cc/ops/linear/packed_blocks_avx512.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/quantized_activations.h"
#include "cc/ops/linear/quantized_activations_avx512.h"
#include "cc/ops/linear/weight_prefetch.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {
namespace {

// Prefetch distance of weights.
constexpr int64_t kPrefetchBytes = 16384;
// Rows of x that are multiplied together: 8 chains of products hide their latency.
template <int kPlanes>
constexpr int kRowsAtOnce = 4 / kPlanes;

// Sums of quads [kFirst, kFirst + kCount) of a block of kRows rows of x times both halves. Each
// starts at the row's integer at `start`, or at 0.
template <int kPlanes, int kRows, int kFirst, int kCount, bool kHasStart>
PAGEMILL_INLINE void MultiplyQuads(const Weights& w, const uint8_t* x, int64_t start,
                                   Sums<kRows>& sums) {
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

// Adds a block of kRows rows of x to the 32 outputs of each.
template <DType kDType, int kPlanes, int kRows, class Rows>
PAGEMILL_INLINE void AddBlock(const Weights& w, const uint8_t* x, const Rows& y) {
  using F = BlockTraits<kDType>;
  constexpr int64_t kAt = kOffsetAt<kPlanes>;
  Sums<kRows> sums;
  if constexpr (F::kHasHalves) {
    Sums<kRows> others;
    MultiplyQuads<kPlanes, kRows, 0, 4, true>(w, x, kAt, sums);
    MultiplyQuads<kPlanes, kRows, 4, 4, true>(w, x, kAt + 4, others);
    if constexpr (F::kHasTwoScales) return AddHalves<kPlanes, kRows>(w, x, sums, others, y);
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
  AddProducts<kDType, kPlanes, kRows>(w, x, sums, y);
}

// Prefetches a line of `range` to L2, since the next products still need L1.
PAGEMILL_INLINE void PrefetchLine(PrefetchRange& range) {
  if (range.begin >= range.end) return;
  _mm_prefetch(reinterpret_cast<const char*>(range.begin), _MM_HINT_T1);
  range.begin += 64;
}

// The same for `count` rows with consecutive records.
template <DType kDType, int kPlanes, class Rows>
PAGEMILL_INLINE void AddBlocks(const Weights& w, const uint8_t* x, const Rows& y, int64_t count,
                               PrefetchRange (&prefetch)[2]) {
  constexpr int kRows = kRowsAtOnce<kPlanes>;
  constexpr int64_t kX = kXRecordBytes<kPlanes>;
  int64_t n = 0;
  for (; n + kRows <= count; n += kRows) {
    PrefetchLine(prefetch[0]);
    PrefetchLine(prefetch[1]);
    PrefetchLine(prefetch[1]);
    AddBlock<kDType, kPlanes, kRows>(w, x + n * kX, y + n);
  }
  for (; n < count; ++n) AddBlock<kDType, kPlanes, 1>(w, x + n * kX, y + n);
}

// Chunk formats: the bytes of a block of `n` rows, and adding its products to the rows' outputs.
template <int kPlanes>
struct PlainActivations {
  static constexpr int64_t BlockBytes(int64_t n) { return n * kXRecordBytes<kPlanes>; }
  template <DType kDType>
  PAGEMILL_INLINE static void AddRow(const Weights& w, const uint8_t* x, __m512 (*y)[kHalves]) {
    AddBlock<kDType, kPlanes, 1>(w, x, RegistersInOrder{y});
  }
  template <DType kDType>
  PAGEMILL_INLINE static void Add(const Weights& w, const uint8_t* x, __m512 (*y)[kHalves],
                                  int64_t n, PrefetchRange (&prefetch)[2]) {
    AddBlocks<kDType, kPlanes>(w, x, RegistersInOrder{y}, n, prefetch);
  }
};

struct MixedActivations {
  static constexpr int64_t BlockBytes(int64_t n) { return MixedBlockBytes<2>(n); }
  template <DType kDType>
  PAGEMILL_INLINE static void AddRow(const Weights& w, const uint8_t* x, __m512 (*y)[kHalves]) {
    const uint8_t* record = x + kMixedHeaderBytes;
    if (x[kShortRecordsAt] == 1) {
      AddBlock<kDType, 1, 1>(w, record, RegistersInOrder{y});
    } else {
      AddBlock<kDType, 2, 1>(w, record, RegistersInOrder{y});
    }
  }
  template <DType kDType>
  PAGEMILL_INLINE static void Add(const Weights& w, const uint8_t* x, __m512 (*y)[kHalves],
                                  int64_t n, PrefetchRange (&prefetch)[2]) {
    const int64_t shorts = x[kShortRecordsAt];
    const uint8_t* records = x + kMixedHeaderBytes;
    AddBlocks<kDType, 1>(w, records, NamedRegisters{y, x}, shorts, prefetch);
    AddBlocks<kDType, 2>(w, records + shorts * kXRecordBytes<2>, NamedRegisters{y, x + shorts},
                         n - shorts, prefetch);
  }
};

// One row of x: weights are read once, sums stay in registers.
template <DType kDType, class Chunk>
void MultiplyRow(const PackedProduct& p) {
  __m512 sums[1][kHalves];
  LoadRow(p, 0, sums[0]);
  const int64_t blocks = p.k / kRecordElements;
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* record = Record<kDType>(p.weights, b);
    PrefetchRecord<kDType>(record + kPrefetchBytes);
    Weights w;
    Decode<kDType>(Head<kDType>(p.weights, b), record, &w);
    Chunk::template AddRow<kDType>(w, p.activations + b * Chunk::BlockBytes(1), sums);
  }
  StoreRow(p, 0, sums[0]);
}

// Prefetches the outputs of row n.
PAGEMILL_INLINE void FetchOutputs(const PackedProduct& p, int64_t n) {
  const char* const y = reinterpret_cast<const char*>(p.y + n * p.y_stride);
  _mm_prefetch(y, _MM_HINT_T0);
  _mm_prefetch(y + 64, _MM_HINT_T0);
}

// Several rows: a block of weights is decoded once for all rows; sums are kept in memory. The
// outputs of a few rows are prefetched with each block, since each slice has its own cache lines;
// outputs of small chunks are in cache.
template <DType kDType, class Chunk>
void MultiplyRows(const PackedProduct& p) {
  __m512 sums[kMaxChunkRows][kHalves];
  for (int64_t n = 0; n < p.n; ++n) LoadRow(p, n, sums[n]);
  PrefetchRange prefetch[2] = {p.prefetch[0], p.prefetch[1]};
  const int64_t blocks = p.k / kRecordElements;
  const int64_t fetched = p.n <= kFewRows ? 0 : p.n;
  const uint8_t* x = p.activations;
  for (int64_t b = 0; b < blocks; ++b, x += Chunk::BlockBytes(p.n)) {
    const uint8_t* record = Record<kDType>(p.weights, b);
    PrefetchRecord<kDType>(record + kPrefetchBytes);
    for (int64_t n = b; n < fetched; n += blocks) FetchOutputs(p, n);
    Weights w;
    Decode<kDType>(Head<kDType>(p.weights, b), record, &w);
    Chunk::template Add<kDType>(w, x, sums, p.n, prefetch);
  }
  for (int64_t n = 0; n < p.n; ++n) StoreRow(p, n, sums[n]);
}

template <int kPlanes>
void Prepare(DType dtype, const InputRows& x, uint8_t* chunk) {
  WithSliceFormat(dtype, [&]<DType kDType>() { PrepareActivations<kDType, kPlanes>(x, chunk); });
}

void PrepareMixed(DType dtype, const InputRows& x, uint8_t* chunk) {
  WithSliceFormat(dtype, [&]<DType kDType>() { PrepareMixedActivations<kDType>(x, chunk); });
}

template <class Chunk>
void Multiply(const PackedProduct& product) {
  WithSliceFormat(product.dtype, [&]<DType kDType>() {
    if (product.n == 1) {
      MultiplyRow<kDType, Chunk>(product);
    } else {
      MultiplyRows<kDType, Chunk>(product);
    }
  });
}

template <int kPlanes>
constexpr PackedGemm kKernels{.max_chunk_rows = kMaxChunkRows,
                              .slice_bytes = BlockSliceBytes,
                              .pack = PackBlockSlice,
                              .chunk_bytes = QuantizedBytes<kPlanes>,
                              .prepare = Prepare<kPlanes>,
                              .multiply = Multiply<PlainActivations<kPlanes>>,
                              .part_multiple = 256};

}  // namespace

constinit const PackedGemm kAvx512VnniKernels = kKernels<1>;
constinit const PackedGemm kAvx512VnniInt16Kernels = kKernels<2>;
// The whole row decides which blocks are outliers. 16 blocks of a chunk are a multiple of 64 bytes.
constinit const PackedGemm kAvx512VnniMixedKernels{.max_chunk_rows = kMaxChunkRows,
                                                   .slice_bytes = BlockSliceBytes,
                                                   .pack = PackBlockSlice,
                                                   .chunk_bytes = MixedBytes<2>,
                                                   .prepare = PrepareMixed,
                                                   .multiply = Multiply<MixedActivations>,
                                                   .part_multiple = 512,
                                                   .prepares_whole = true,
                                                   .shares_columns = true};

}  // namespace pagemill::ops::linear
