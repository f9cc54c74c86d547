// File: cc/ops/causal_conv/causal_conv.h
// Depthwise causal convolution over the tokens of each request, then SiLU, as state-space layers
// apply it before their scan, or nothing, as gated short convolutions do.
//
//   y[t, c] = act(bias[c] + sum_j w[c, j] * x[t - (K - 1) + j, c])
//
// x before the first token of a step comes from the request's state, the last K - 1 rows of x, and
// is 0 before the request's first token.
//
//   inputs   x      act [T, ...]           rows of C channels, any trailing shape
//            w      f32 [C, ...]           K taps of each channel, the newest last
//            bias   f32 [C] or missing
//            state  f32 [pages, K - 1, C]  read and written as state_pages.h says
//   outputs  y      act [T, ...]
//   attributes  kind: an ActivationKind, kSilu (0, the default) or kIdentity
//   batch    query_start, seq_lens, block_table, block_size, recent_states
//   aliasing none
//
// 2 <= K <= kMaxConvTaps. The taps are added in order, so the bits of y and of the state do not
// depend on how a request is divided into steps, or on other requests. Error bound: K * 2^-23 of
// the sum of |w x|, then that of Silu in cc/ops/vec/vec_math.h.
//
// Kernels: "avx512", "avx2", "portable", "reference" (accumulates in double).
#ifndef PAGEMILL_CC_OPS_CAUSAL_CONV_CAUSAL_CONV_H_
#define PAGEMILL_CC_OPS_CAUSAL_CONV_CAUSAL_CONV_H_

#include "cc/ops/activation/activation_kind.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

inline constexpr int64_t kMaxConvTaps = 8;

struct CausalConvArgs {
  TensorView x, w, bias, state, y;
  const BatchView* batch = nullptr;
  int64_t channels = 0;
  int64_t taps = 0;
  ActivationKind kind = ActivationKind::kSilu;
};

CausalConvArgs ToCausalConvArgs(const OpCall& call);
const OpDefinition& CausalConvOp();

void CausalConvReference(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_CAUSAL_CONV_CAUSAL_CONV_H_
