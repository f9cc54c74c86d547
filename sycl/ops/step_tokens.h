// File: sycl/ops/step_tokens.h
// The request of a token of the step. Kernel text only.
#ifndef PAGEMILL_SYCL_OPS_STEP_TOKENS_H_
#define PAGEMILL_SYCL_OPS_STEP_TOKENS_H_

#include "sycl/ops/kernel.h"

namespace pagemill::sycl {

// The last request whose first token is not after `token`, among those with tokens.
inline int32_t RequestOfToken(const StepTokens& batch, int32_t token) {
  int32_t low = 0, high = batch.num_requests;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    (batch.query_start[middle] <= token ? low : high) = middle;
  }
  return low;
}

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_STEP_TOKENS_H_
