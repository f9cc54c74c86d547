// File: cuda/ops/paged_attention/value_product.h
// Weights of keys times values on tensor cores, where not all rows see all keys.
//
//   AddValueProduct</*kAllSeen=*/false>(a, b, sums);
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_VALUE_PRODUCT_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_VALUE_PRODUCT_H_

#include <cmath>
#include <cstdint>

#include "cuda/gpu_vendor.h"
#include "cuda/ops/paged_attention/attention_rows.h"

namespace pagemill::gpu {

// Mma16x8x16(sums, a, b) for weights `a`, which are 0 of keys that a row does not see, and values
// `b`. Values that are not finite make sums NaN of the rows that see them alone: the instruction
// would multiply them with the other rows' zeros. kAllSeen: every row of the warp sees all keys.
template <bool kAllSeen>
PAGEMILL_DEVICE void AddValueProduct(const uint32_t (&a)[4], const uint32_t (&b)[2],
                                     float (&sums)[4]) {
  if constexpr (kAllSeen) {
    Mma16x8x16(sums, a, b);
  } else {
    const uint32_t bad[2] = {NotFinite(b[0]), NotFinite(b[1])};
    Mma16x8x16(sums, a, {b[0] & ~bad[0], b[1] & ~bad[1]});
    if (Ballot(AllLanes(), (bad[0] | bad[1]) != 0) == 0) return;
    constexpr uint32_t kOnes = 0x3f803f80u;
    float seen[4] = {};
    Mma16x8x16(seen, a, {bad[0] & kOnes, bad[1] & kOnes});
    PAGEMILL_UNROLL
    for (int i = 0; i < 4; ++i) sums[i] = seen[i] > 0 ? NAN : sums[i];
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_VALUE_PRODUCT_H_
