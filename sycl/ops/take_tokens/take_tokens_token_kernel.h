#ifndef PAGEMILL_SYCL_OPS_TAKE_TOKENS_TAKE_TOKENS_TOKEN_KERNEL_H_
#define PAGEMILL_SYCL_OPS_TAKE_TOKENS_TAKE_TOKENS_TOKEN_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/take_tokens/take_tokens_params.h"

// A work-item for each token.
PAGEMILL_KERNEL void take_tokens_kernel(TakeTokensParams p) {
  const int64_t t = GlobalId();
  if (t >= p.tokens) return;
  const int32_t id = p.ids[t];
  p.y[t] = sycl::max(0, id >= 0 ? id : p.sampled[-1 - id]);
}

#endif  // PAGEMILL_SYCL_OPS_TAKE_TOKENS_TAKE_TOKENS_TOKEN_KERNEL_H_
