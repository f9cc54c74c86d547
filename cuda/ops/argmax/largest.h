// File: cuda/ops/argmax/largest.h
// The largest logit of a row, with its column, found by the threads of a block together.
//
//   Found own = {-INFINITY, -1};  // none
//   ... own = Better(own, {logit, column}) ...
//   const Found found = BestOfBlock<kThreads>(own);  // the same in every thread
#ifndef PAGEMILL_CUDA_OPS_ARGMAX_LARGEST_H_
#define PAGEMILL_CUDA_OPS_ARGMAX_LARGEST_H_

#include <cstdint>

#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

struct Found {
  float value;
  int32_t column;
};

// The better of two: the larger value, or the lower column. Any column is lower than -1. None of
// the values is NaN.
PAGEMILL_DEVICE Found Better(Found a, Found b) {
  if (a.value != b.value) return a.value > b.value ? a : b;
  return static_cast<uint32_t>(a.column) < static_cast<uint32_t>(b.column) ? a : b;
}

PAGEMILL_DEVICE Found BestOfWarp(Found found) {
  for (int bits = WarpLanes() / 2; bits > 0; bits /= 2) {
    Found other;
    other.value = ShuffleXor(AllLanes(), found.value, bits);
    other.column = ShuffleXor(AllLanes(), found.column, bits);
    found = Better(found, other);
  }
  return found;
}

// Every thread of a block of kThreads calls it at the same line.
template <int kThreads>
PAGEMILL_DEVICE Found BestOfBlock(Found found) {
  PAGEMILL_SHARED(Found[kThreads / 32], of_warps);
  found = BestOfWarp(found);
  SyncBlock();  // those before have been read
  if (Lane() == 0) of_warps[Warp()] = found;
  SyncBlock();
  for (int warp = 0; warp < kThreads / WarpLanes(); ++warp) found = Better(found, of_warps[warp]);
  return found;
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ARGMAX_LARGEST_H_
