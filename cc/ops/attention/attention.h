// File: cc/ops/attention/attention.h
// Attention among the tokens of a request in the step, without a KV cache: for encoders of text and
// images, which run whole sequences.
//
//   inputs   q      act [N, Hq, D]   N = J T: each of the batch's T tokens has J rows;
//                                    1 <= D <= 512
//            k, v   act [N, Hk, D]   Hq is a multiple of Hk
//            biases f32 [Hq, 2 * reach + 1], or of each query, [N, Hq, 2 * reach + 1]; optional
//            column_biases           likewise, with a reach of its own; only with grid_columns
//            key_biases f32 [N, Hq, 2 * reach + 1] of each key, with a reach of its own; optional,
//                                    without grid_columns
//            sinks  f32 [Hq], optional: a logit per head that joins the softmax's denominator
//   outputs  y      act [N, Hq, D]
//   batch    num_tokens; query_start; num_requests bounds the requests when the call is checked;
//            grid_positions if grid_window is not 0
//   attributes  scale > 0; causal = 1; window = 0 (none); chunked = 0, 1 only with a window;
//               prefix = 0, above 0 only with causal = 1 and without a window; grid_window = 0
//               (none), above 0 only with causal = 0, without a window and with J = 1;
//               grid_columns = 0, above 0 if and only if there are column_biases, which need
//               biases; soft_cap = 0 (none), else in the range of paged_attention
//   aliasing    none
//
// The rows of a request are those of its tokens, one after the other. A row sees all rows of its
// request in the step, with causal = 1 those up to itself, and the first `prefix` rows; with a
// window only those less than `window` rows away, or if it is chunked, with the same position /
// window, rounded down. With grid_window it sees those of its window of the grid: of the same time,
// row / grid_window and column / grid_window, rounded down. The tokens of a window are consecutive;
// if others lie between them, each run of them is a window of its own.
//
// Scores are q k^T scale, plus biases[reach + d], with d = position of the key - position of the
// query, from -reach to reach; farther keys have the bias of the reach. key_biases add
// key_biases[key, reach + d], the entry of the key's row. With grid_columns positions are those of
// a grid row by row: d is the distance of position / grid_columns, rounded down, and
// column_biases[reach + e] are added, too, with e the distance of position % grid_columns. With
// soft_cap these sums become soft_cap tanh(score / soft_cap). Weights are e^score over the sum of
// those of the visible keys, to which e^sink is added. Head h of q reads head h / (Hq / Hk) of k
// and v.
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
#include "cc/ops/paged_attention/distance_biases.h"

namespace pagemill::ops {

// Optional inputs. One that is left out in front of others is a view of rank 0.
inline constexpr size_t kAttentionBiases = 3, kAttentionColumnBiases = 4, kAttentionKeyBiases = 5,
                        kAttentionSinks = 6;
inline bool HasAttentionInput(const OpCall& call, size_t input) {
  return call.inputs.size() > input && call.inputs[input].rank > 0;
}

// Rows of q for each token of the batch.
inline int32_t RowsOfToken(const OpCall& call) {
  const int32_t tokens = call.batch->num_tokens;
  return tokens == 0 ? 1 : static_cast<int32_t>(call.inputs[0].shape[0] / tokens);
}

// The biases of a call, by what its operands hold.
DistanceBiases AttentionBiases(const OpCall& call);
// Those of all query heads; null: none.
const float* AttentionSinks(const OpCall& call);

const OpDefinition& AttentionOp();

// Requires f32 activations.
void AttentionReference(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ATTENTION_ATTENTION_H_
