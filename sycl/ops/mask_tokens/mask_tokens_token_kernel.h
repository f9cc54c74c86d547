#ifndef PAGEMILL_SYCL_OPS_MASK_TOKENS_MASK_TOKENS_TOKEN_KERNEL_H_
#define PAGEMILL_SYCL_OPS_MASK_TOKENS_MASK_TOKENS_TOKEN_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/mask_tokens/mask_tokens_params.h"

// A work-item for each logit.
PAGEMILL_KERNEL void mask_tokens_kernel(MaskTokensParams p) {
  const int64_t row = GlobalId() / p.width, v = GlobalId() % p.width;
  if (row >= p.rows) return;
  const float x = p.x.Row<const float>(row)[v];
  const int32_t mask = p.draws.Row<const int32_t>(row)[p.mask_word];
  const bool allowed =
      mask < 0 || (p.masks.Row<const uint32_t>(mask)[v / 32] >> v % 32 & 1u) != 0;
  const bool invalid = sycl::isnan(x) || x == kInfinity;
  p.y.Row<float>(row)[v] = allowed || invalid ? x : -kInfinity;
}

#endif  // PAGEMILL_SYCL_OPS_MASK_TOKENS_MASK_TOKENS_TOKEN_KERNEL_H_
