// File: cc/ops/linear/weight_prefetch.h
// Weights are read once a call, in order, mostly from memory: kernels ask for them ahead.
//
//   PrefetchWeights(w + kPrefetchBytes);
#ifndef PAGEMILL_CC_OPS_LINEAR_WEIGHT_PREFETCH_H_
#define PAGEMILL_CC_OPS_LINEAR_WEIGHT_PREFETCH_H_

#include <cstdint>

namespace pagemill::ops::linear {

// Fetches a line to L2, which waits for more lines at once than L1 (README.md, "Prefetching to
// L2"). For kernels that are faster than memory. GCC drops calls of a function that only
// prefetches, unless it has to inline it.
[[gnu::always_inline]] inline void PrefetchWeights(const uint8_t* at) {
  __builtin_prefetch(at, /*rw=*/0, /*locality=*/2);
}

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_WEIGHT_PREFETCH_H_
