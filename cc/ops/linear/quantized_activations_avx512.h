// File: cc/ops/linear/quantized_activations_avx512.h
// Quantizes rows of x as quantized_activations.h describes, with AVX-512 and VNNI. For files
// compiled for these instruction sets only.
//
//   PrepareActivations<kDType, 1>(x, chunk);    // 8 bits; 2: 15
//   PrepareMixedActivations<kDType>(x, chunk);  // x.n is kMaxChunkRows at most
//
// Magnitudes are compared as integers, so NaN is the largest: the scale of a block with a NaN is
// NaN, and so are all outputs of the row. Scales and their inverses are computed for 16 blocks at a
// time; the integers of a block, as bytes, are summed by the dot product instruction.
#ifndef PAGEMILL_CC_OPS_LINEAR_QUANTIZED_ACTIVATIONS_AVX512_H_
#define PAGEMILL_CC_OPS_LINEAR_QUANTIZED_ACTIVATIONS_AVX512_H_

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "cc/ops/linear/packed_blocks.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/quantized_activations.h"
#include "cc/tensor/dtype.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {
namespace {

// A chunk of 32 rows of 576 elements takes at most 43 KB: it stays in L1 while slices are read.
constexpr int64_t kMaxChunkRows = 32;
constexpr int64_t kFewRows = 16;  // smaller chunks are the only chunk of a call
constexpr int64_t kLanes = 16;

PAGEMILL_INLINE void StoreFloat(uint8_t* out, float value) { __builtin_memcpy(out, &value, 4); }
PAGEMILL_INLINE void StoreInt(uint8_t* out, int32_t value) { __builtin_memcpy(out, &value, 4); }

// The larger magnitude of both halves of a block, lane by lane.
PAGEMILL_INLINE __m512i Magnitudes(const float* x) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const __m512i first = _mm512_and_si512(_mm512_loadu_si512(x), magnitude);
  const __m512i last = _mm512_and_si512(_mm512_loadu_si512(x + kLanes), magnitude);
  return _mm512_max_epu32(first, last);
}

// The bits of the largest magnitudes of `count` blocks, at most 4; 0 for those beyond.
PAGEMILL_INLINE __m128i LargestBits(const float* x, int64_t count) {
  const __m512i none = _mm512_setzero_si512();
  const __m512i a = Magnitudes(x);
  const __m512i b = count > 1 ? Magnitudes(x + kRecordElements) : none;
  const __m512i c = count > 2 ? Magnitudes(x + 2 * kRecordElements) : none;
  const __m512i d = count > 3 ? Magnitudes(x + 3 * kRecordElements) : none;
  const __m512i ab = _mm512_max_epu32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const __m512i cd = _mm512_max_epu32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  const __m512i all =
      _mm512_max_epu32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  const __m256i folded =
      _mm256_max_epu32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
  return _mm_max_epu32(_mm256_castsi256_si128(folded), _mm256_extracti128_si256(folded, 1));
}

// Scales of 16 blocks and their inverses, by which elements are multiplied to become integers.
struct alignas(64) Steps {
  float inverse[kLanes];
  float scale[kLanes];
};

// Computes the scales of blocks with these largest bits, those in `twos` with two planes, the
// others with one.
PAGEMILL_INLINE void FindSteps(__m512i bits, __mmask16 twos, Steps* steps) {
  constexpr float kOne = 127, kTwo = 127 * 128;
  const __m512 top = _mm512_castsi512_ps(bits);
  const __mmask16 counts = _mm512_cmp_ps_mask(top, _mm512_set1_ps(kSmallestBlock), _CMP_NLT_UQ);
  const __m512 largest = _mm512_mask_mov_ps(_mm512_set1_ps(kOne), twos, _mm512_set1_ps(kTwo));
  const __m512 part = _mm512_mask_mov_ps(_mm512_set1_ps(1 / kOne), twos, _mm512_set1_ps(1 / kTwo));
  _mm512_store_ps(steps->inverse, _mm512_maskz_div_ps(counts, largest, top));
  _mm512_store_ps(steps->scale, _mm512_maskz_mul_ps(counts, top, part));
}

// Adds the 4 bytes of each 32-bit lane to its sum.
PAGEMILL_INLINE __m128i AddBytes(__m128i sums, __m128i bytes) {
  return _mm_dpbusd_epi32(sums, _mm_set1_epi8(1), bytes);
}

// Sum of the lanes, in lane 0.
PAGEMILL_INLINE __m128i Sum(__m128i v) {
  v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4E));
  return _mm_add_epi32(v, _mm_shuffle_epi32(v, 0xB1));
}

// Stores 16 elements as bytes at `out`; of two planes, the upper one at `out` and the lower one
// after it. Returns their sums by quads.
template <int kPlanes>
PAGEMILL_INLINE __m128i StoreIntegers(const float* x, __m512 inverse, uint8_t* out) {
  const __m512i integers = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), inverse));
  const auto store = [](__m128i bytes, uint8_t* to) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
    return bytes;
  };
  const __m128i none = _mm_setzero_si128();
  if constexpr (kPlanes == 1) return AddBytes(none, store(_mm512_cvtsepi32_epi8(integers), out));
  const __m512i upper = _mm512_srai_epi32(_mm512_add_epi32(integers, _mm512_set1_epi32(64)), 7);
  const __m512i lower = _mm512_sub_epi32(integers, _mm512_slli_epi32(upper, 7));
  const __m128i sums = AddBytes(none, store(_mm512_cvtsepi32_epi8(upper), out));
  return AddBytes(_mm_slli_epi32(sums, 7), store(_mm512_cvtepi32_epi8(lower), out + 32));
}

// Prefetches a block of elements.
PAGEMILL_INLINE void Prefetch(const float* x) {
  _mm_prefetch(reinterpret_cast<const char*>(x), _MM_HINT_T0);
  _mm_prefetch(reinterpret_cast<const char*>(x + kLanes), _MM_HINT_T0);
}

// Writes the record of a block.
template <DType kDType, int kPlanes>
PAGEMILL_INLINE void QuantizeBlock(const float* x, float inverse, float scale, uint8_t* out) {
  using F = BlockTraits<kDType>;
  const __m512 step = _mm512_set1_ps(inverse);
  const __m128i first = StoreIntegers<kPlanes>(x, step, out);
  const __m128i last = StoreIntegers<kPlanes>(x + kLanes, step, out + kLanes);
  StoreFloat(out + kScaleAt<kPlanes>, scale);
  uint8_t* offsets = out + kOffsetAt<kPlanes>;
  const __m128i factor = _mm_set1_epi32(-F::kLayout.zero_point);
  const auto store = [](uint8_t* to, __m128i sum) { StoreInt(to, _mm_cvtsi128_si32(sum)); };
  if constexpr (F::kHasHalves) {
    store(offsets, _mm_mullo_epi32(Sum(first), factor));
    store(offsets + 4, _mm_mullo_epi32(Sum(last), factor));
    return;
  }
  const __m128i sum = Sum(_mm_add_epi32(first, last));
  StoreInt(offsets + 4, 0);
  if constexpr (F::kHasMinimum) {
    StoreFloat(offsets, scale * _mm_cvtss_f32(_mm_cvtepi32_ps(sum)));
  } else {
    store(offsets, _mm_mullo_epi32(sum, factor));
  }
}

// Prepares a chunk of records with equal numbers of planes.
template <DType kDType, int kPlanes>
void PrepareActivations(const InputRows& x, uint8_t* chunk) {
  constexpr __mmask16 kTwos = kPlanes == 2 ? 0xffff : 0;
  const int64_t step = x.n * kXRecordBytes<kPlanes>;
  for (int64_t n = std::max<int64_t>(x.begin, 0); n < std::min(x.n, x.end); ++n) {
    uint8_t* out = chunk + n * kXRecordBytes<kPlanes>;
    const float* row = x.rows + n * x.stride;
    const float* const end = row + x.k;
    while (row < end) {
      const int64_t blocks = std::min<int64_t>(kLanes, (end - row) / kRecordElements);
      alignas(64) uint32_t bits[kLanes] = {};
      for (int64_t b = 0; b < blocks; b += 4) {
        _mm_store_si128(reinterpret_cast<__m128i*>(bits + b),
                        LargestBits(row + b * kRecordElements, blocks - b));
      }
      Steps steps;
      FindSteps(_mm512_load_si512(bits), kTwos, &steps);
      for (int64_t b = 0; b < blocks; ++b, row += kRecordElements, out += step) {
        Prefetch(row + kLanes * kRecordElements);
        QuantizeBlock<kDType, kPlanes>(row, steps.inverse[b], steps.scale[b], out);
      }
    }
  }
}

// Writes the bits of the largest magnitudes of a row's blocks from column `first` to `last` to
// consecutive blocks of a chunk from `out` on, and returns the bits above which a block is an
// outlier.
PAGEMILL_INLINE uint32_t FindLimit(const float* row, const InputRows& x, int64_t block_bytes,
                                   uint8_t* out) {
  const int64_t blocks = x.k / kRecordElements;
  const int64_t first = x.first_column / kRecordElements;
  const int64_t last = std::min(x.last_column, x.k) / kRecordElements;
  const __m128i smallest = _mm_set1_epi32(__builtin_bit_cast(int32_t, kSmallestBlock));
  __m256i sums = _mm256_setzero_si256();
  int64_t count = 0;
  for (int64_t b = 0; b < blocks; b += 4) {
    const __m128i bits = LargestBits(row + b * kRecordElements, blocks - b);
    const __mmask8 counts = _mm_cmpge_epu32_mask(bits, smallest);
    sums = _mm256_add_epi64(sums, _mm256_cvtepu32_epi64(_mm_maskz_mov_epi32(counts, bits)));
    count += std::popcount(static_cast<uint32_t>(counts));
    alignas(16) int32_t of[4];
    _mm_store_si128(reinterpret_cast<__m128i*>(of), bits);
    const int64_t begin = std::max(first, b), end = std::min(last, b + 4);
    for (int64_t i = begin; i < end; ++i) StoreInt(out + (i - first) * block_bytes, of[i - b]);
  }
  if (count == 0) return 0;
  const __m128i pairs =
      _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  const int64_t sum = _mm_cvtsi128_si64(pairs) + _mm_extract_epi64(pairs, 1);
  return static_cast<uint32_t>(sum / count + kOutlierThreshold);
}

// Prepares one block of a mixed chunk; `limits` are the thresholds of its rows, whose largest bits
// are stored in the place of its records.
template <DType kDType>
PAGEMILL_INLINE void QuantizeMixedBlock(const float* x, int64_t stride, int64_t rows,
                                        const uint32_t* limits, uint8_t* block) {
  Steps steps[kMaxChunkRows / kLanes];
  uint8_t* record = block + kMixedHeaderBytes;
  uint32_t twos = 0;
  for (int64_t n = 0; n < rows; n += kLanes) {
    const __mmask16 used = static_cast<__mmask16>((1u << std::min(rows - n, kLanes)) - 1);
    const __m512i bits = _mm512_maskz_loadu_epi32(used, record + 4 * n);
    const __mmask16 out = _mm512_cmpgt_epu32_mask(bits, _mm512_load_si512(limits + n));
    FindSteps(bits, out, &steps[n / kLanes]);
    twos |= static_cast<uint32_t>(out) << n;
  }
  const auto step = [&steps](int64_t n) {
    return std::pair(steps[n / kLanes].inverse[n % kLanes], steps[n / kLanes].scale[n % kLanes]);
  };
  const uint32_t all = rows == 32 ? ~0u : (1u << rows) - 1;
  uint8_t* name = block;
  for (uint32_t left = all & ~twos; left != 0; left &= left - 1) {
    const int n = std::countr_zero(left);
    const auto [inverse, scale] = step(n);
    *name++ = static_cast<uint8_t>(n);
    QuantizeBlock<kDType, 1>(x + n * stride, inverse, scale, record);
    record += kXRecordBytes<1>;
  }
  const int64_t shorts = name - block;
  block[kShortRecordsAt] = static_cast<uint8_t>(shorts);
  record = block + kMixedHeaderBytes + shorts * kXRecordBytes<2>;
  for (uint32_t left = twos; left != 0; left &= left - 1) {
    const int n = std::countr_zero(left);
    const auto [inverse, scale] = step(n);
    *name++ = static_cast<uint8_t>(n);
    QuantizeBlock<kDType, 2>(x + n * stride, inverse, scale, record);
    record += kXRecordBytes<2>;
  }
}

// Prepares a single block with these largest bits.
template <DType kDType, int kPlanes>
struct BlockQuantizer {
  PAGEMILL_INLINE void operator()(const float* x, uint32_t bits, uint8_t* out) const {
    constexpr float kLargest = kPlanes == 1 ? 127 : 127 * 128;
    const float top = __builtin_bit_cast(float, bits);
    const bool is_zero = top < kSmallestBlock;
    QuantizeBlock<kDType, kPlanes>(x, is_zero ? 0 : kLargest / top,
                                   is_zero ? 0 : top * (1 / kLargest), out);
  }
};

// All rows of a mixed chunk are prepared together. The first pass finds the threshold of each row;
// the second writes the chunk block by block, for all rows, so that writes are contiguous. The
// blocks of few rows do not fill a register.
template <DType kDType>
void PrepareMixedActivations(const InputRows& x, uint8_t* chunk) {
  if (x.n <= kFewRows) {
    const auto largest = [](const float* of) { return _mm512_reduce_max_epu32(Magnitudes(of)); };
    return PrepareMixedRows<1, 2>(x, chunk, largest, BlockQuantizer<kDType, 1>(),
                                  BlockQuantizer<kDType, 2>());
  }
  if (!x.Prepares(0)) return;
  const int64_t block_bytes = MixedBlockBytes<2>(x.n);
  const int64_t first = x.first_column, last = std::min(x.last_column, x.k);
  uint8_t* block = chunk + first / kRecordElements * block_bytes;
  alignas(64) uint32_t limits[kMaxChunkRows] = {};
  for (int64_t n = 0; n < x.n; ++n) {
    limits[n] = FindLimit(x.rows + n * x.stride, x, block_bytes, block + kMixedHeaderBytes + 4 * n);
  }
  for (int64_t k = first; k < last; k += kRecordElements, block += block_bytes) {
    QuantizeMixedBlock<kDType>(x.rows + k, x.stride, x.n, limits, block);
  }
}

}  // namespace
}  // namespace pagemill::ops::linear

#undef PAGEMILL_INLINE

#endif  // PAGEMILL_CC_OPS_LINEAR_QUANTIZED_ACTIVATIONS_AVX512_H_
