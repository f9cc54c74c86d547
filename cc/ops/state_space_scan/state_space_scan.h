// File: cc/ops/state_space_scan/state_space_scan.h
// The recurrence of Mamba-2 layers (Dao and Gu, "Transformers are SSMs", 2024), over the tokens of
// each request. For each head with its state h [N, P], its group's B and C [N], and x [P]:
//
//   dt   = softplus(dt[t] + dt_bias)
//   h    = exp(-dt * exp(a_log)) * h + dt * B[t] x[t]^T
//   y[t] = h^T C[t] + d * x[t]
//
//   inputs   xbc      act [T, ...]         rows of x, B and C one after the other:
//                                          H * P + 2 * G * N elements, any trailing shape
//            dt       act [T, H]
//            a_log    f32 [H]
//            d        f32 [H]
//            dt_bias  f32 [H]
//            state    f32 [pages, H, N, P] read and written as state_pages.h says; a request's
//                                          first state is 0
//   outputs  y        act [T, ...]         rows of H * P elements
//   batch    query_start, seq_lens, block_table, block_size, recent_states
//   aliasing none
//
// Head i belongs to group i / (H / G). G follows from the width of xbc.
//
// Tokens are computed one after the other, so the bits of y and of the state do not depend on how a
// request is divided into steps, or on other requests. Error bound, relative to the sum of the
// absolute values of all terms: 2^-24 times (N plus three times the number of tokens with a
// significant weight, about 1 / (1 - exp(-dt exp(a_log)))).
//
// Kernels: "avx512", "avx2", "portable", "reference" (accumulates in double between two states).
#ifndef PAGEMILL_CC_OPS_STATE_SPACE_SCAN_STATE_SPACE_SCAN_H_
#define PAGEMILL_CC_OPS_STATE_SPACE_SCAN_STATE_SPACE_SCAN_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

struct StateSpaceScanArgs {
  TensorView xbc, dt, a_log, d, dt_bias, state, y;
  const BatchView* batch = nullptr;
  int64_t heads = 0;
  int64_t states = 0;  // N
  int64_t head_dim = 0;
  int64_t groups = 0;

  // Offsets of B and C of a head's group in a row of xbc.
  int64_t BOffset(int64_t head) const {
    return heads * head_dim + head / (heads / groups) * states;
  }
  int64_t COffset(int64_t head) const { return BOffset(head) + groups * states; }
};

StateSpaceScanArgs ToStateSpaceScanArgs(const OpCall& call);
const OpDefinition& StateSpaceScanOp();

void StateSpaceScanReference(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_STATE_SPACE_SCAN_STATE_SPACE_SCAN_H_
