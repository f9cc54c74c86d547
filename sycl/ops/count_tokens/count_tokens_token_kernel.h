#ifndef PAGEMILL_SYCL_OPS_COUNT_TOKENS_COUNT_TOKENS_TOKEN_KERNEL_H_
#define PAGEMILL_SYCL_OPS_COUNT_TOKENS_COUNT_TOKENS_TOKEN_KERNEL_H_

#include "cc/ops/sample/row_adjustments.h"
#include "sycl/ops/count_tokens/count_tokens_params.h"
#include "sycl/ops/kernel.h"

// A work-item for each word of a cleared slot.
PAGEMILL_KERNEL void clear_counts_kernel(CountTokensParams p) {
  const int64_t c = GlobalId() / p.width, v = GlobalId() % p.width;
  if (c < p.num_cleared) p.counts.Row<int32_t>(p.cleared[c])[v] = 0;
}

// A work-item for each change.
PAGEMILL_KERNEL void count_tokens_kernel(CountTokensParams p) {
  const int64_t n = GlobalId();
  if (n >= p.num_changes) return;
  const int32_t* const words = p.changes.Row<const int32_t>(n);
  const pagemill::ops::TokenCount change = {words[0], words[1], words[2]};
  const int32_t token = change.token_id >= 0 ? change.token_id : p.ids[-1 - change.token_id];
  if (token < 0 || token >= p.width) return;
  p.counts.Row<int32_t>(change.slot)[token] += change.amount;
}

#endif  // PAGEMILL_SYCL_OPS_COUNT_TOKENS_COUNT_TOKENS_TOKEN_KERNEL_H_
