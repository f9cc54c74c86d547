// File: cc/ops/gated_delta/gated_delta.h
// The gated delta rule (Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024), over the tokens
// of each request. For each head with its state S [K, V] and v [V], and the q and k [K] that its
// group shares:
//
//   q, k = q / |q| / sqrt(K), k / |k|                 where |x| = sqrt(x^T x + 1e-6)
//   S    = exp(-exp(a_log) * softplus(a[t] + dt_bias)) * S         row by row, if a has K elements
//   S    = S + k (share_scale * sigmoid(b[t]) * (v - S^T k))^T
//   y[t] = S^T q
//
//   inputs   qkv      act [T, ...]         rows of 2 * G * K + H * V elements
//            b        act [T, ...]         rows of H elements, any trailing shape
//            a        act [T, ...]         rows of H elements, or of H * K: a decay for each key
//            a_log    f32 [H]
//            dt_bias  f32 [H], or [H * K]
//            state    f32 [pages, H, K, V] read and written as state_pages.h says; a request's
//                                          first state is 0
//   outputs  y        act [T, ...]         rows of H * V elements
//   attributes  by_group = 0: a row of qkv has q of all groups, k of all groups, v of all heads;
//               1: for each group its q, its k, and v of its heads; in_turn = 0: head i belongs to
//               group i / (H / G), 1: to group i % G, not with by_group; share_scale = 1, from 0 to 2
//   batch    query_start, seq_lens, block_table, block_size, recent_states
//   aliasing none
//
// K <= kMaxDeltaKeys. G follows from the width of qkv.
//
// Tokens are computed one after the other, so the bits of y and of the state do not depend on how a
// request is divided into steps, or on other requests. Error bound, relative to the largest |v| so
// far: 2^-24 times (2 K plus 4 times the number of tokens), since no step enlarges a state's error.
// A kernel on tensor cores may compute in chunks of tokens, so that bits depend on where those
// begin (Kernel::varies_with_batch), with factors rounded to 16 bits: that of v, of a change of the
// state, and of what makes the one from the other lose 2^-17 each, 2.4e-5 in all.
//
// Kernels: "avx512", "avx2", "portable", "reference" (accumulates in double between two states).
#ifndef PAGEMILL_CC_OPS_GATED_DELTA_GATED_DELTA_H_
#define PAGEMILL_CC_OPS_GATED_DELTA_GATED_DELTA_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

inline constexpr float kDeltaNormEps = 1e-6f;

struct GatedDeltaArgs {
  TensorView qkv, b, a, a_log, dt_bias, state, y;
  const BatchView* batch = nullptr;
  int64_t heads = 0;
  int64_t groups = 0;
  int64_t keys = 0;    // K
  int64_t values = 0;  // V
  int64_t rates = 0;   // elements of a and dt_bias of a head: 1, or K
  bool by_group = false;
  bool in_turn = false;
  float share_scale = 1;

  // Offsets of a head's q, k and v in a row of qkv.
  int64_t QOffset(int64_t head) const {
    const int64_t group = in_turn ? head % groups : head / (heads / groups);
    return group * (by_group ? 2 * keys + heads / groups * values : keys);
  }
  int64_t KOffset(int64_t head) const { return QOffset(head) + (by_group ? 1 : groups) * keys; }
  int64_t VOffset(int64_t head) const {
    return by_group ? QOffset(head) + 2 * keys + head % (heads / groups) * values
                    : 2 * groups * keys + head * values;
  }
};

GatedDeltaArgs ToGatedDeltaArgs(const OpCall& call);
const OpDefinition& GatedDeltaOp();

void GatedDeltaReference(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_GATED_DELTA_GATED_DELTA_H_
