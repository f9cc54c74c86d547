// File: cc/ops/linear/block_strip.h
// Strips of activations quantized to integers, for products with panels of block formats
// (block_panel.h). An integer has one plane of 8 bits, or two that make 15.
//
// A strip of n rows of x is, for each block of 32 elements, ascending, n records:
//
//   int8[32]    the integers; with two planes the upper ones
//   int8[32]    only with two planes, the lower ones: an integer is 128 * upper + lower, where
//               lower is from -64 to 63
//   float32     scale: the block's largest |x| / L; L = 127, or 127 * 128 with two planes
//   4 bytes     weights with minima: float32, scale * the sum of the integers; else int32, the
//               negative zero point times the sum of the integers, of elements 0..15 alone where
//               halves of a block have scales
//   4 bytes     there: int32, the same of elements 16..31
//
// Integers are x / scale rounded to the nearest, ties to even. A block whose largest |x| is below
// kSmallestBlock counts as zeros; one with a NaN has a NaN for a scale.
//
// Order of accumulation: blocks ascending, by
//   sum = fma(float(sum of integer products), weight scale * x scale, sum)
//   sum = fma(weight minimum, x scale * sum of integers, sum)    where the format has minima
// then + bias. Integer sums are exact: with two planes and Q6_K, its scales of half blocks
// included, 32 * 32 * 127 * 128 * 128 < 2^31.
#ifndef PAGEMILL_CC_OPS_LINEAR_BLOCK_STRIP_H_
#define PAGEMILL_CC_OPS_LINEAR_BLOCK_STRIP_H_

#include <cstdint>

#include "cc/ops/linear/block_panel.h"
#include "cc/ops/linear/packed_kernel_set.h"
#include "cc/tensor/dtype.h"

namespace pagemill::ops::linear {

inline constexpr float kSmallestBlock = 0x1p-100f;

// Where the fields of a record lie, in bytes.
template <int kPlanes>
inline constexpr int64_t kScaleAt = 32 * kPlanes;
template <int kPlanes>
inline constexpr int64_t kOffsetAt = kScaleAt<kPlanes> + 4;  // or the scaled sum
template <int kPlanes>
inline constexpr int64_t kXRecordBytes = kOffsetAt<kPlanes> + 8;

// What kernels ask of a block format.
template <DType kDType>
struct BlockTraits {
  static constexpr BlockPanelLayout kLayout = BlockPanelLayoutOf(kDType);
  static constexpr bool kHasHead = kLayout.head_bytes != 0;
  static constexpr bool kHasMinimum = kLayout.minima != 0;
  static constexpr bool kHasHalfScales = kDType == DType::kQ6_K;
};

// Calls f.template operator()<dtype>() for a block format.
template <class F>
[[gnu::always_inline]] inline void WithBlockFormat(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kQ4_0:
      return f.template operator()<DType::kQ4_0>();
    case DType::kQ4_1:
      return f.template operator()<DType::kQ4_1>();
    case DType::kQ5_0:
      return f.template operator()<DType::kQ5_0>();
    case DType::kQ8_0:
      return f.template operator()<DType::kQ8_0>();
    case DType::kQ4_K:
      return f.template operator()<DType::kQ4_K>();
    case DType::kQ5_K:
      return f.template operator()<DType::kQ5_K>();
    case DType::kQ6_K:
      return f.template operator()<DType::kQ6_K>();
    default:
      return;  // excluded by the row's `supports`
  }
}

// Calls quantize(elements, record) for each block of each row of a strip.
template <int kPlanes, class Quantize>
[[gnu::always_inline]] inline void PrepareRows(const InputRows& x, uint8_t* strip,
                                               const Quantize& quantize) {
  for (int64_t n = 0; n < x.n; ++n) {
    if (!x.Prepares(n)) continue;
    uint8_t* out = strip + n * kXRecordBytes<kPlanes>;
    for (int64_t k = 0; k < x.k; k += kPanelBlock, out += x.n * kXRecordBytes<kPlanes>) {
      quantize(x.rows + n * x.stride + k, out);
    }
  }
}

// Bytes of a strip, for kernel sets: a multiple of 64.
template <int kPlanes>
static int64_t BlockStripBytes(DType, int64_t n, int64_t k) {
  return (n * (k / kPanelBlock) * kXRecordBytes<kPlanes> + 63) / 64 * 64;
}

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_BLOCK_STRIP_H_
