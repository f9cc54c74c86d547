// File: cc/ops/selective_scan/selective_scan.h
// The recurrence of Mamba layers (Gu and Dao, "Mamba", 2023), over the tokens of each request. For
// each channel with its state h [N], and B and C [N] of all channels:
//
//   dt   = softplus(dt[t] + dt_bias)
//   h    = exp(-dt * exp(a_log)) * h + dt * x[t] * B[t]
//   y[t] = h^T C[t] + d * x[t]
//
//   inputs   x, dt    act [T, ...]       rows of C elements, any trailing shape
//            b, c     act [T, ...]       rows of N elements
//            a_log    f32 [C, N]
//            d        f32 [C]
//            dt_bias  f32 [C]
//            state    f32 [pages, N, C]  read and written as state_pages.h says; a request's first
//                                        state is 0
//   outputs  y        act [T, ...]       rows of C elements
//   batch    query_start, seq_lens, block_table, block_size, recent_states
//   aliasing none
//
// N <= kMaxSelectiveStates. Unlike state_space_scan, every element of a state decays by itself.
//
// Tokens are computed one after the other, so the bits of y and of the state do not depend on how a
// request is divided into steps, or on other requests. Error bound, relative to the sum of the
// absolute values of all terms: 2^-24 times (N plus six times the number of tokens with a
// significant weight, about 1 / (1 - exp(-dt exp(a_log)))).
//
// Kernels: "avx512", "avx2", "portable", "reference" (accumulates in double between two states).
#ifndef PAGEMILL_CC_OPS_SELECTIVE_SCAN_SELECTIVE_SCAN_H_
#define PAGEMILL_CC_OPS_SELECTIVE_SCAN_SELECTIVE_SCAN_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

struct SelectiveScanArgs {
  TensorView x, dt, b, c, a_log, d, dt_bias, state, y;
  const BatchView* batch = nullptr;
  int64_t channels = 0;
  int64_t states = 0;  // N
};

SelectiveScanArgs ToSelectiveScanArgs(const OpCall& call);
const OpDefinition& SelectiveScanOp();

void SelectiveScanReference(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SELECTIVE_SCAN_SELECTIVE_SCAN_H_
