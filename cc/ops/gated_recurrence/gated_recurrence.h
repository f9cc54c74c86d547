// File: cc/ops/gated_recurrence/gated_recurrence.h
// The real-gated linear recurrent unit of Griffin and RecurrentGemma (De et al., arXiv 2402.19427),
// over the tokens of each request. For each channel with its state h:
//
//   log_a = -8 * sigmoid(gate[t]) * softplus(rate)
//   h     = exp(log_a) * h + sqrt(1 - exp(2 log_a)) * x[t]    (x[t] for a request's first token)
//   y[t]  = h
//
//   inputs   x, gate  act [T, ...]    rows of C elements, any trailing shape
//            rate     f32 [C]
//            state    f32 [pages, C]  read and written as state_pages.h says
//   outputs  y        act [T, ...]    rows of C elements
//   batch    query_start, seq_lens, block_table, block_size, recent_states
//   aliasing none
//
// Tokens are computed one after the other, so the bits of y and of the state do not depend on how a
// request is divided into steps, or on other requests. Error bound, relative to the largest |x|:
// 3e-6 for each token with a significant weight, about 1 / (1 - exp(log_a)) of them.
//
// Kernels: "avx512", "avx2", "portable", "reference" (in double between two states).
#ifndef PAGEMILL_CC_OPS_GATED_RECURRENCE_GATED_RECURRENCE_H_
#define PAGEMILL_CC_OPS_GATED_RECURRENCE_GATED_RECURRENCE_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

inline constexpr double kGateFactor = -8;

struct GatedRecurrenceArgs {
  TensorView x, gate, rate, state, y;
  const BatchView* batch = nullptr;
  int64_t channels = 0;
};

GatedRecurrenceArgs ToGatedRecurrenceArgs(const OpCall& call);
const OpDefinition& GatedRecurrenceOp();

void GatedRecurrenceReference(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_GATED_RECURRENCE_GATED_RECURRENCE_H_
