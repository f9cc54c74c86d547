// File: cc/ops/linear/quantized_activations.h
// Chunks of activations quantized to integers, for products with slices of block formats
// (packed_blocks.h). An integer has one plane of 8 bits, or two planes that hold 15 bits; in a
// mixed chunk, blocks that are outliers of their row have two planes, the others one.
//
// A chunk of n rows of x is, for each block of 32 elements, ascending, n records:
//
//   int8[32]    the integers; with two planes the upper ones
//   int8[32]    only with two planes, the lower ones: an integer is 128 * upper + lower, where
//               lower is from -64 to 63
//   float32     scale: the block's largest |x| / L; L = 127, or 127 * 128 with two planes
//   4 bytes     weights with minima: float32, scale * the sum of the integers; else int32, the
//               negative zero point times the sum of the integers, of elements 0..15 alone if
//               halves of a block have scales (Q3_K, Q6_K, NVFP4)
//   4 bytes     there: int32, the same of elements 16..31
//
// Integers are x / scale rounded to the nearest, ties to even. A block whose largest |x| is below
// kSmallestBlock counts as zeros; one with a NaN has a NaN for a scale.
//
// A block is an outlier if the bits of its largest |x|, as an integer, exceed their mean over the
// blocks of its row that do not count as zeros by more than kOutlierThreshold. The bits of a float
// are about a logarithm, so the largest |x| is then at least about twice its geometric mean. The
// decision depends only on the row.
//
// A mixed chunk of n rows is, for each block, ascending, n records in this order:
//
//   uint8[32]   the row of each record
//   uint8, 3 bytes of padding: s, the number of records with one plane
//   s records of one plane; then, n - s records with two that end at n times their size
//
// Order of accumulation: blocks ascending, by
//   sum = fma(float(sum of integer products), weight scale * x scale, sum)
//   sum = fma(weight minimum, x scale * sum of integers, sum)    if the format has minima
// or, of NVFP4, by the integer products of the two halves of a block
//   sum = fma(fma(float(second), second scale, float(first) * first scale), x scale, sum)
// then + bias. Integer sums are exact: with two planes and Q6_K, including its scales of half
// blocks, 32 * 32 * 127 * 128 * 128 < 2^31.
#ifndef PAGEMILL_CC_OPS_LINEAR_QUANTIZED_ACTIVATIONS_H_
#define PAGEMILL_CC_OPS_LINEAR_QUANTIZED_ACTIVATIONS_H_

#include <cstddef>
#include <cstdint>

#include "cc/ops/block_format/block_layout.h"
#include "cc/ops/linear/packed_blocks.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/tensor/dtype.h"

namespace pagemill::ops::linear {

inline constexpr float kSmallestBlock = 0x1p-100f;

// Offsets of the fields of a record, in bytes.
template <int kPlanes>
inline constexpr int64_t kScaleAt = 32 * kPlanes;
template <int kPlanes>
inline constexpr int64_t kOffsetAt = kScaleAt<kPlanes> + 4;  // or of the scaled sum
template <int kPlanes>
inline constexpr int64_t kXRecordBytes = kOffsetAt<kPlanes> + 8;

inline constexpr int64_t kShortRecordsAt = 32;
inline constexpr int64_t kMixedHeaderBytes = 36;
inline constexpr int64_t kOutlierThreshold = int64_t{1} << 23;  // an exponent

// Bytes of a block of n rows with records of two planes of `kLong` times 32 bytes. Words need two
// even for one plane.
template <int kLong>
constexpr int64_t MixedBlockBytes(int64_t n) {
  return kMixedHeaderBytes + n * kXRecordBytes<kLong>;
}

// Properties of a block format that kernels depend on.
template <DType kDType>
struct BlockTraits {
  static constexpr PackedBlockLayout kLayout = PackedBlockLayoutOf(kDType);
  static constexpr bool kHasHead = kLayout.head_bytes != 0;
  static constexpr bool kHasMinimum = kLayout.minima != 0;
  // Integers that scale the two halves of a block, beside its scale; or a scale of each half.
  static constexpr bool kHasHalfScales = HasHalfScales(kDType);
  static constexpr bool kHasTwoScales = kDType == kNvfp4Blocks;
  static constexpr bool kHasHalves = kHasHalfScales || kHasTwoScales;
  static constexpr bool kHasBf16Scales = kDType == DType::kMxfp4;
  static constexpr bool kHasTable = TableOf(kDType) != nullptr;
};

// The values of the codes of a format: less its zero point, or unsigned.
struct CodeValues {
  alignas(16) int8_t centred[16];
  alignas(16) uint8_t values[16];
};

template <DType kDType>
inline constexpr CodeValues kCodeValues = [] {
  CodeValues of = {};
  for (int i = 0; i < 16; ++i) {
    of.centred[i] = (*TableOf(kDType))[static_cast<size_t>(i)];
    of.values[i] = static_cast<uint8_t>(of.centred[i] + PackedBlockLayoutOf(kDType).zero_point);
  }
  return of;
}();

// The scale of a block's integers and its inverse; both 0 if the block counts as zeros.
struct BlockScale {
  float scale;
  float inverse;
};

// `bits` are those of the block's largest |x|, kLevels is L. Compared as integers, magnitudes have
// the order of their values, and NaN is the largest.
template <int kLevels>
[[gnu::always_inline]] inline BlockScale BlockScaleOf(uint32_t bits) {
  constexpr float kLargest = kLevels;
  const float top = __builtin_bit_cast(float, bits);
  if (top < kSmallestBlock) return {0, 0};
  return {top * (1 / kLargest), kLargest / top};
}

// Writes the fields after the integers of a record, whose sums are `first` for elements 0..15 and
// `second` for the others.
template <DType kDType, int kPlanes>
[[gnu::always_inline]] inline void FinishRecord(float scale, int32_t first, int32_t second,
                                                uint8_t* record) {
  using T = BlockTraits<kDType>;
  constexpr int32_t kZeroPoint = T::kLayout.zero_point;
  uint8_t* const offsets = record + kOffsetAt<kPlanes>;
  __builtin_memcpy(record + kScaleAt<kPlanes>, &scale, 4);
  if constexpr (T::kHasMinimum) {
    const float sum = scale * static_cast<float>(first + second);
    __builtin_memcpy(offsets, &sum, 4);
  } else {
    const int32_t sum = -kZeroPoint * (T::kHasHalves ? first : first + second);
    __builtin_memcpy(offsets, &sum, 4);
  }
  const int32_t other = T::kHasHalves ? -kZeroPoint * second : 0;
  __builtin_memcpy(offsets + 4, &other, 4);
}

// Outputs of rows of x between blocks, kSliceRows floats each: of consecutive rows, or of the rows
// that a mixed chunk lists.
struct RowsInOrder {
  float* y;
  [[gnu::always_inline]] float* operator[](int64_t row) const { return y + row * kSliceRows; }
  [[gnu::always_inline]] RowsInOrder operator+(int64_t row) const { return {(*this)[row]}; }
};

struct NamedRows {
  float* y;
  const uint8_t* rows;
  [[gnu::always_inline]] float* operator[](int64_t row) const { return y + rows[row] * kSliceRows; }
  [[gnu::always_inline]] NamedRows operator+(int64_t row) const { return {y, rows + row}; }
};

// Calls quantize(elements, record) for each block of each row of a chunk.
template <int kPlanes, class Quantize>
[[gnu::always_inline]] inline void PrepareRows(const InputRows& x, uint8_t* chunk,
                                               const Quantize& quantize) {
  for (int64_t n = 0; n < x.n; ++n) {
    if (!x.Prepares(n)) continue;
    uint8_t* out = chunk + n * kXRecordBytes<kPlanes>;
    for (int64_t k = 0; k < x.k; k += kRecordElements, out += x.n * kXRecordBytes<kPlanes>) {
      quantize(x.rows + n * x.stride + k, out);
    }
  }
}

// Quantizes all rows of a mixed chunk. largest(x) returns the bits of the largest magnitude of a
// block, with NaN as the largest; one(x, bits, record) and two(x, bits, record) write a block with
// one plane and with two.
template <int kShort, int kLong, class Largest, class One, class Two>
[[gnu::always_inline]] inline void PrepareMixedRows(const InputRows& x, uint8_t* chunk,
                                                    const Largest& largest, const One& one,
                                                    const Two& two) {
  if (!x.Prepares(0)) return;
  const int64_t block_bytes = MixedBlockBytes<kLong>(x.n);
  const int64_t first = x.first_column, last = x.last_column < x.k ? x.last_column : x.k;
  uint8_t* const begin = chunk + first / kRecordElements * block_bytes;
  uint8_t* const end = chunk + last / kRecordElements * block_bytes;
  for (uint8_t* block = begin; block < end; block += block_bytes) block[kShortRecordsAt] = 0;
  for (int64_t n = 0; n < x.n; ++n) {
    const float* const row = x.rows + n * x.stride;
    int64_t sum = 0;
    int64_t count = 0;
    uint8_t* own = begin;
    for (int64_t k = 0; k < x.k; k += kRecordElements) {
      const uint32_t bits = largest(row + k);
      if (first <= k && k < last) {
        // Stores the bits in the place of the next record with one plane, which is unused until the
        // block is written.
        uint8_t* record = own + kMixedHeaderBytes + own[kShortRecordsAt] * kXRecordBytes<kShort>;
        __builtin_memcpy(record, &bits, sizeof(bits));
        own += block_bytes;
      }
      const bool counts = bits >= __builtin_bit_cast(uint32_t, kSmallestBlock);
      sum += counts ? bits : 0;
      count += counts;
    }
    const int64_t others = count == 0 ? 0 : sum / count + kOutlierThreshold;
    const float* elements = row + first;
    for (uint8_t* block = begin; block < end; block += block_bytes, elements += kRecordElements) {
      const int64_t shorts = block[kShortRecordsAt];
      uint8_t* const records = block + kMixedHeaderBytes;
      uint8_t* const record = records + shorts * kXRecordBytes<kShort>;
      uint32_t bits;
      __builtin_memcpy(&bits, record, sizeof(bits));
      if (bits > others) {
        // Records with two planes, n - shorts so far, fill the block from its end.
        const int64_t at = x.n - 1 - (n - shorts);
        block[at] = static_cast<uint8_t>(n);
        two(elements, bits, records + at * kXRecordBytes<kLong>);
      } else {
        block[shorts] = static_cast<uint8_t>(n);
        block[kShortRecordsAt] = static_cast<uint8_t>(shorts + 1);
        one(elements, bits, record);
      }
    }
  }
}

// Bytes of a mixed chunk: a multiple of 64.
template <int kLong>
static int64_t MixedBytes(DType, int64_t n, int64_t k) {
  return (k / kRecordElements * MixedBlockBytes<kLong>(n) + 63) / 64 * 64;
}

// Bytes of a chunk, for packed GEMMs: a multiple of 64.
template <int kPlanes>
static int64_t QuantizedBytes(DType, int64_t n, int64_t k) {
  return (n * (k / kRecordElements) * kXRecordBytes<kPlanes> + 63) / 64 * 64;
}

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_QUANTIZED_ACTIVATIONS_H_
