// File: cuda/ops/gated_delta/split_pairs.h
// Numbers of f32 as sums of two of bf16, for products on tensor cores that lose 2^-17 of each at
// most.
//
//   SplitRows a(sums[0], sums[1]);     // results of products, as the left operand of the next one
//   Mma16x8x16(c, a.high, b);
//   Mma16x8x16(c, a.low, b);
#ifndef PAGEMILL_CUDA_OPS_GATED_DELTA_SPLIT_PAIRS_H_
#define PAGEMILL_CUDA_OPS_GATED_DELTA_SPLIT_PAIRS_H_

#include <cstdint>

#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

PAGEMILL_DEVICE uint32_t PairAt(const BFloat16* from) {
  return *reinterpret_cast<const uint32_t*>(from);
}
PAGEMILL_DEVICE float FirstFloat(uint32_t pair) { return BitsToFloat(pair << 16); }
PAGEMILL_DEVICE float SecondFloat(uint32_t pair) { return BitsToFloat(pair & 0xffff0000u); }

PAGEMILL_DEVICE BFloat16 FirstOf(uint32_t pair) { return {static_cast<uint16_t>(pair)}; }
PAGEMILL_DEVICE BFloat16 SecondOf(uint32_t pair) { return {static_cast<uint16_t>(pair >> 16)}; }

struct SplitPair {
  uint32_t high, low;

  PAGEMILL_DEVICE SplitPair(float first, float second)
      : high(PackBFloat16(first, second)),
        low(PackBFloat16(first - FirstFloat(high), second - SecondFloat(high))) {}
};

// 16 rows of 16 columns, as the left operand of Mma16x8x16, of two results of it, 8 columns each.
struct SplitRows {
  uint32_t high[4], low[4];

  PAGEMILL_DEVICE SplitRows(const float (&left)[4], const float (&right)[4]) {
    PAGEMILL_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float(&from)[4] = i < 2 ? left : right;
      const SplitPair pair(from[i % 2 * 2], from[i % 2 * 2 + 1]);
      high[i] = pair.high;
      low[i] = pair.low;
    }
  }
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_GATED_DELTA_SPLIT_PAIRS_H_
