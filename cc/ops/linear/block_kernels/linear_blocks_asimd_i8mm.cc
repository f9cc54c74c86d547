// `linear` with block-format weights in slices (packed_blocks.h) and activations quantized to
// integers (quantized_activations.h), multiplied by SMMLA: 2 weight rows of 8 elements times 2 rows
// of 8.
//
// The two rows on the side of x are two rows of x, or the two planes of one row of 15 bits. The
// pairs of weight rows are zipped from two quads of 4 weight rows, once for all rows of x. A single
// row of x uses SDOT, which has the same rate for one row and needs no zips; sums are exact, so the
// bits are the same.
#include <arm_neon.h>

#include <cstdint>

#include "cc/ops/linear/block_kernels/block_walk_inl.h"
#include "cc/ops/linear/block_kernels/packed_blocks_asimd.h"
#include "cc/ops/linear/packed_blocks.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/quantized_activations.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {
namespace {

constexpr int kMaxPairs = 2;     // multiplied together: 16 registers of sums
constexpr int kWeightPairs = 8;  // of 16 weight rows

// Two rows of 8-bit integers: two records of a chunk, or the planes of one.
struct Pair {
  const uint8_t* first;
  const uint8_t* second;
};

PAGEMILL_INLINE int8x16_t LoadPair(const Pair& x, int quad) {
  const uint8x8_t first = vld1_u8(x.first + 4 * quad);
  return vreinterpretq_s8_u8(vcombine_u8(first, vld1_u8(x.second + 4 * quad)));
}

// Sums of each pair of weight rows and each pair: [weight][x].
template <int kPairs>
using PairSums = int32x4_t[kPairs][kWeightPairs];

// Adds quads [kQuad, kEnd), two at a time.
template <DType kDType, int kPairs, int kQuad, int kEnd>
PAGEMILL_INLINE void AddQuads(const Weights& w, const Pair* x, PairSums<kPairs>& sums) {
  if constexpr (kQuad < kEnd) {
    int8x16_t rows[kPairs];
    for (int p = 0; p < kPairs; ++p) rows[p] = LoadPair(x[p], kQuad);
    for (int v = 0; v < kVectors; ++v) {
      const int32x4_t a = vreinterpretq_s32_s8(LoadValues<kDType, kQuad>(w, v));
      const int32x4_t b = vreinterpretq_s32_s8(LoadValues<kDType, kQuad + 1>(w, v));
      const int8x16_t low = vreinterpretq_s8_s32(vzip1q_s32(a, b));
      const int8x16_t high = vreinterpretq_s8_s32(vzip2q_s32(a, b));
      for (int p = 0; p < kPairs; ++p) {
        sums[p][2 * v] = vmmlaq_s32(sums[p][2 * v], low, rows[p]);
        sums[p][2 * v + 1] = vmmlaq_s32(sums[p][2 * v + 1], high, rows[p]);
      }
    }
    AddQuads<kDType, kPairs, kQuad + 2, kEnd>(w, x, sums);
  }
}

// Sums of quads [kFirst, kEnd) times the pairs. Each starts at the integer at `offset` of its
// record, or at 0: a pair of records has two such integers, a pair of planes one.
template <DType kDType, int kPlanes, int kPairs, int kFirst, int kEnd>
PAGEMILL_INLINE void MultiplyQuads(const Weights& w, const Pair* x, int64_t offset,
                                   int32x4_t out[][kVectors]) {
  PairSums<kPairs> sums;
  for (int p = 0; p < kPairs; ++p) {
    int32_t starts[2] = {0, 0};
    if constexpr (kHasStart<kDType>) {
      starts[0] = kPlanes == 1 ? ReadInt(x[p].first + offset) : 0;
      starts[1] = kPlanes == 1 ? ReadInt(x[p].second + offset) : ReadInt(x[p].first + offset);
    }
    const int32x2_t start = vld1_s32(starts);
    for (int v = 0; v < kWeightPairs; ++v) sums[p][v] = vcombine_s32(start, start);
  }
  AddQuads<kDType, kPairs, kFirst, kEnd>(w, x, sums);
  for (int p = 0; p < kPairs; ++p) {
    for (int v = 0; v < kVectors; ++v) {
      const int32x4_t first = vuzp1q_s32(sums[p][2 * v], sums[p][2 * v + 1]);
      const int32x4_t second = vuzp2q_s32(sums[p][2 * v], sums[p][2 * v + 1]);
      if constexpr (kPlanes == 1) {
        out[2 * p][v] = first;
        out[2 * p + 1][v] = second;
      } else {
        out[p][v] = vaddq_s32(vshlq_n_s32(first, 7), second);
      }
    }
  }
}

// Adds a block of kPairs pairs to the 16 outputs of each row in this half; those of row r are at
// y[r * 32]. There are `count` rows of x: the last pair may have only one.
template <DType kDType, int kPlanes, int kPairs>
PAGEMILL_INLINE void AddBlock(const Weights& w, const uint8_t* x, int64_t count, float* y) {
  constexpr int64_t kX = kXRecordBytes<kPlanes>;
  constexpr int64_t kAt = kOffsetAt<kPlanes>;
  constexpr int kRows = kPlanes == 1 ? 2 * kPairs : kPairs;
  Pair pairs[kPairs];
  for (int p = 0; p < kPairs; ++p) {
    if constexpr (kPlanes == 1) {
      const uint8_t* first = x + 2 * p * kX;
      pairs[p] = {first, 2 * p + 1 < count ? first + kX : first};
    } else {
      pairs[p] = {x + p * kX, x + p * kX + 32};
    }
  }
  int32x4_t sums[kRows][kVectors];
  if constexpr (BlockTraits<kDType>::kHasHalves) {
    int32x4_t others[kRows][kVectors];
    MultiplyQuads<kDType, kPlanes, kPairs, 0, 4>(w, pairs, kAt, sums);
    MultiplyQuads<kDType, kPlanes, kPairs, 4, 8>(w, pairs, kAt + 4, others);
    if constexpr (BlockTraits<kDType>::kHasTwoScales) {
      for (int r = 0; r < kRows && r < count; ++r) {
        AddHalves<kPlanes>(w, x + r * kX, sums[r], others[r], y + r * kSliceRows);
      }
      return;
    }
    for (int r = 0; r < kRows; ++r) ScaleHalves(w, others[r], sums[r]);
  } else {
    MultiplyQuads<kDType, kPlanes, kPairs, 0, kQuads>(w, pairs, kAt, sums);
  }
  for (int r = 0; r < kRows && r < count; ++r) {
    AddScaled<kDType, kPlanes>(w, x + r * kX, sums[r], y + r * kSliceRows);
  }
}

template <int kPlanes>
constexpr const PackedGemm& kSdotKernels =
    kPlanes == 1 ? kAsimdDotprodKernels : kAsimdDotprodInt16Kernels;

// For kKernels (block_walk_inl.h).
template <int kPlanes>
struct SmmlaBlocks : PlainBlocks<kPlanes> {
  static constexpr int64_t kPrefetchBytes = kAsimdPrefetchBytes;

  template <DType kDType>
  static void Prepare(const InputRows& x, uint8_t* chunk) {
    kSdotKernels<kPlanes>.prepare(kDType, x, chunk);
  }

  template <DType kDType>
  PAGEMILL_INLINE static void Add(const uint8_t* head, const uint8_t* record, const uint8_t* x,
                                  int64_t n, float* y) {
    constexpr int64_t kPairRows = kPlanes == 1 ? 2 : 1;
    constexpr int64_t kRows = kMaxPairs * kPairRows;
    for (int half = 0; half < kHalves; ++half, y += kHalfSliceRows) {
      const Weights w = LoadWeights<kDType>(head, record, half);
      int64_t r = 0;
      for (; r + kRows <= n; r += kRows) {
        AddBlock<kDType, kPlanes, kMaxPairs>(w, x + r * kXRecordBytes<kPlanes>, kRows,
                                             y + r * kSliceRows);
      }
      for (; r < n; r += kPairRows) {
        AddBlock<kDType, kPlanes, 1>(w, x + r * kXRecordBytes<kPlanes>, n - r, y + r * kSliceRows);
      }
    }
  }
};

template <int kPlanes>
void MultiplyAny(const PackedProduct& product) {
  if (product.n == 1) return kSdotKernels<kPlanes>.multiply(product);
  Multiply<SmmlaBlocks<kPlanes>>(product);
}

template <int kPlanes>
constexpr PackedGemm SmmlaKernels() {
  PackedGemm kernels = kKernels<SmmlaBlocks<kPlanes>>;
  kernels.multiply = MultiplyAny<kPlanes>;
  return kernels;
}

}  // namespace

constinit const PackedGemm kAsimdI8mmKernels = SmmlaKernels<1>();
constinit const PackedGemm kAsimdI8mmInt16Kernels = SmmlaKernels<2>();

}  // namespace pagemill::ops::linear
