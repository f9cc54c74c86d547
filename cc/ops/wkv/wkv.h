// File: cc/ops/wkv/wkv.h
// The recurrence of RWKV-4 (Peng et al., arXiv 2305.13048), over the tokens of each request: for
// each channel a mean of the values of the request's tokens up to t, weighted by their keys and by
// how long ago they were:
//
//   y[t] = sum_i e[i] value[i] / sum_i e[i]
//   e[t] = exp(first + key[t])
//   e[i] = exp(key[i] - (t - 1 - i) exp(decay))      for i < t
//
// The state has three rows: numerator and denominator of the sums over all tokens, both divided by
// exp(m), and m, the largest exponent in them.
//
//   inputs   key, value    act [T, ...]       rows of C elements, any trailing shape
//            decay, first  f32 [C]
//            state         f32 [pages, 3, C]  read and written as state_pages.h says
//   outputs  y             act [T, ...]       rows of C elements
//   batch    query_start, seq_lens, block_table, block_size, recent_states
//   aliasing none
//
// Tokens are computed one after the other, so the bits of y and of the state do not depend on how a
// request is divided into steps, or on other requests. Error bound, relative to the largest
// |value|: 1e-6 + 1.2e-7 max |key|, since m is rounded with each token, for each token with a
// significant weight, about 1 / (1 - exp(-exp(decay))) of them.
//
// Kernels: "avx512", "avx2", "portable", "reference" (in double between two states).
#ifndef PAGEMILL_CC_OPS_WKV_WKV_H_
#define PAGEMILL_CC_OPS_WKV_WKV_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

inline constexpr int64_t kWkvStateRows = 3;

struct WkvArgs {
  TensorView key, value, decay, first, state, y;
  const BatchView* batch = nullptr;
  int64_t channels = 0;
};

WkvArgs ToWkvArgs(const OpCall& call);
const OpDefinition& WkvOp();

void WkvReference(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_WKV_WKV_H_
