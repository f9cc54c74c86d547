// File: cc/ops/attention/attention.h
// Attention among the tokens of a request in the step, without a KV cache: for encoders of text and
// images, which run whole sequences.
//
//   inputs   q      act [T, Hq, D]   1 <= D <= 512
//            k, v   act [T, Hk, D]   Hq is a multiple of Hk
//            biases f32 [Hq, 2 * reach + 1], optional
//   outputs  y      act [T, Hq, D]
//   batch    query_start; num_requests bounds the requests when the call is checked;
//            grid_positions if grid_window is not 0
//   attributes  scale > 0; causal = 1; window = 0 (none); grid_window = 0 (none), above 0 only with
//               causal = 0 and without a window
//   aliasing    none
//
// Token t of a request sees all tokens of its request in the step, with causal = 1 those up to
// itself, with a window only those less than `window` tokens away. With grid_window it sees those
// of its window of the grid: of the same time, row / grid_window and column / grid_window, rounded
// down. The tokens of a window are consecutive; if others lie between them, each run of them is a
// window of its own. Scores are q k^T scale, plus bias[reach + d], with d = position of the key -
// position of the query, from -reach to reach; weights e^score over the sum of those of the visible
// keys. Head h of q reads head h / (Hq / Hk) of k and v.
//
// Result: the bits of one query's output depend on its q, its place in its request and the keys and
// values it sees: not on the other requests of the call or on threads.
//
// Error bound: that of paged_attention with an f32 cache, |y - exact| <= 4e-6 (1 + max |score|) max
// |v|. Kernels of Precision::kBf16 round q, k and v to bf16 (nearest, ties to even) and compute on
// the rounded values; rounded weights then add kPagedAttentionRounding max |v|, as in
// paged_attention.
//
// Kernels: "amx_bf16" and "avx512_bf16" (kBf16), "avx512", "avx2" and "portable", which run
// kv_write and paged_attention over pages in the workspace (README.md), and "reference" (in
// double).
#ifndef PAGEMILL_CC_OPS_ATTENTION_ATTENTION_H_
#define PAGEMILL_CC_OPS_ATTENTION_ATTENTION_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

inline constexpr size_t kAttentionBiases = 3;  // an optional input

const OpDefinition& AttentionOp();

// Requires f32 activations.
void AttentionReference(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ATTENTION_ATTENTION_H_
