// File: cc/ops/matrix_wkv/matrix_wkv.h
// The recurrences of RWKV-5 and RWKV-6 (Peng et al., arXiv 2404.05892) and of RWKV-7 (Peng et al.,
// arXiv 2503.14456), over the tokens of each request. For each head, with r, k, v and w the rows of
// receptance, key, value and decay, and a state S, [K, V], whose rows decay each at its own rate:
//
//   y[t] = S^T r + (r^T (bonus * k)) v
//   S    = exp(-exp(w)) * S + k v^T
//
// RWKV-7 also removes keys from the state. With rates a = sigmoid(rate[t]):
//
//   x      = removal * k / |removal * k|       where |x| is at least 1e-12
//   k      = k * (1 + boost * (a - 1))
//   S      = exp(-exp(-1/2) sigmoid(w)) * S - (a * x) (S^T x)^T + k v^T
//   y[t]   = S^T r
//   own[t] = (r^T (bonus * k)) v
//
//   inputs   receptance, key  act [T, ...]         rows of H * K elements, any trailing shape
//            value            act [T, ...]         rows of H * V elements
//            decay            act [T, ...]         rows of H * K elements; or f32 [H * K], the same
//                                                  for all tokens
//            bonus            f32 [H * K]
//            rate             act [T, ...]         rows of H * K elements; without it, removal and
//            removal, boost   f32 [H * K]          boost no key is removed
//            state            f32 [pages, H, K, V] read and written as state_pages.h says; a
//                                                  request's first state is 0
//   outputs  y                act [T, ...]         rows of H * V elements
//            own              likewise             if keys are removed
//   batch    query_start, seq_lens, block_table, block_size, recent_states
//   aliasing none
//
// K <= kMaxWkvKeys.
//
// Tokens are computed one after the other, so the bits of y and of the state do not depend on how a
// request is divided into steps, or on other requests. Error bound for |r| and |k| up to 1,
// relative to the largest |v|: 2^-24 times 2 K times the number of tokens that a state remembers,
// at most those of the request.
//
// Kernels: "avx512", "avx2", "portable", "reference" (in double between two states).
#ifndef PAGEMILL_CC_OPS_MATRIX_WKV_MATRIX_WKV_H_
#define PAGEMILL_CC_OPS_MATRIX_WKV_MATRIX_WKV_H_

#include "cc/ops/matrix_wkv/wkv_head.h"  // kMaxWkvKeys and constants of the formulas
#include "cc/ops/op.h"

namespace pagemill::ops {

struct MatrixWkvArgs {
  TensorView receptance, decay, key, value, bonus, rate, removal, boost, state, y, own;
  const BatchView* batch = nullptr;
  int64_t heads = 0;
  int64_t keys = 0;    // K
  int64_t values = 0;  // V

  bool removes() const { return rate.rank > 0; }
  bool decay_is_shared() const { return decay.rank == 1; }
};

MatrixWkvArgs ToMatrixWkvArgs(const OpCall& call);
const OpDefinition& MatrixWkvOp();

void MatrixWkvReference(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_MATRIX_WKV_MATRIX_WKV_H_
