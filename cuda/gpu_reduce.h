// File: cuda/gpu_reduce.h
// Sums and maxima over the lanes of a warp and the threads of a block, in an order that depends on
// the block's size only. Every thread of the block calls them at the same line; blocks are whole
// warps.
//
//   const float squares = BlockSum(own);  // the same in every thread
#ifndef PAGEMILL_CUDA_GPU_REDUCE_H_
#define PAGEMILL_CUDA_GPU_REDUCE_H_

#include <cstdint>

#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

struct Sum {
  PAGEMILL_DEVICE float operator()(float a, float b) const { return a + b; }
};
struct Max {
  PAGEMILL_DEVICE float operator()(float a, float b) const { return fmaxf(a, b); }
};

// `lanes` of the warp, a power of two, together.
template <typename Combine>
PAGEMILL_DEVICE float WarpReduce(float value, Combine combine, int lanes = WarpLanes()) {
  for (int bits = lanes / 2; bits > 0; bits /= 2) {
    value = combine(value, ShuffleXor(AllLanes(), value, bits));
  }
  return value;
}

template <typename Combine>
PAGEMILL_DEVICE float BlockReduce(float value, Combine combine) {
  PAGEMILL_SHARED(float[32], of_warps);
  const int warps = static_cast<int>(BlockSize().x) / WarpLanes();
  value = WarpReduce(value, combine);
  if (warps == 1) return value;
  SyncBlock();  // those before have read
  if (Lane() == 0) of_warps[Warp()] = value;
  SyncBlock();
  value = of_warps[0];
  for (int warp = 1; warp < warps; ++warp) value = combine(value, of_warps[warp]);
  return value;
}

PAGEMILL_DEVICE float WarpSum(float value) { return WarpReduce(value, Sum{}); }
PAGEMILL_DEVICE float WarpMax(float value) { return WarpReduce(value, Max{}); }
PAGEMILL_DEVICE float BlockSum(float value) { return BlockReduce(value, Sum{}); }
PAGEMILL_DEVICE float BlockMax(float value) { return BlockReduce(value, Max{}); }

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_GPU_REDUCE_H_
