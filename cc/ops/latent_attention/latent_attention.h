// File: cc/ops/latent_attention/latent_attention.h
// Multi-head latent attention of the step's queries over each request's cached context, in its
// absorbed form (arXiv 2405.04434, 2.1): prefill, decode and any mix of them in one call.
//
//   inputs   q      act [T, H, R]  the unrotated part of each query times the key projection of its
//                                  head (`head_linear`), 1 <= R <= kMaxLatentSize
//            rope   act [T, H, P]  the rotated part; or missing (a view of rank 0), P = 0
//            cache  f32 or bf16 [pages, block_size / m, R + P], or f8_e4m3 [pages, block_size / m,
//                   bytes of a row] (latent_f8_row.h), in which `latent_write` has stored the
//                   step's own tokens
//            chosen i32 [T, K], optional: the positions of the tokens that each query sees, as
//                   `select_tokens` chooses them: ascending, -1 behind the last
//   outputs  y      act [T, H, R]  the value projection of each head comes after it
//            lse    f32 [T, H], with sums = 1: the logarithm of the sum of e^score, for
//                   `merge_attention`
//   batch    query_start, seq_lens, block_table, block_size (also needed by the check)
//   attributes  scale > 0;  sums = 0;  window = 0: tokens that a query sees, itself included, 0 for
//               all; only without `chosen` and with m = 1;  bf16_elements = 0: those at the end of
//               a row that an f8_e4m3 cache has in bf16
//   aliasing    none
//
// With c and k the latent and the rotated key of a cached token, head h of a query scores it
// (q_h c + rope_h k) scale. y_h is the sum of all c at and before the query's position, each
// weighted with e^score over the sum of these; with `chosen` the sum of those at the chosen
// positions alone, so that the cost of a query does not grow with its context. Slots that a query
// does not see may hold anything, NaN included. A query at position p with a window w sees the
// tokens from p - w + 1 on. If a row of the cache stands for m > 1 tokens (latent_cache.h), a
// query at p sees the first (p + 1) / m rows, and `chosen` are numbers of rows. A
// query that sees nothing has y = 0 and lse = -infinity.
//
// Result: the bits of one head of a query depend on its q and rope, its position and the tokens
// that it sees (if it chooses all, those without `chosen`): not on the other queries and requests
// of the call, on how the prompt was divided into steps, or on threads. On CPUs, an f8_e4m3 cache
// gives the bits of a bf16 cache with the same values.
//
// Error bound: |y - exact| <= 4e-6 (1 + max |score|) max |c| over the visible tokens, on the
// cache's values as stored: as paged_attention.h derives for its f32 kernels; of lse 4e-6 (1 + max
// |score|).
//
// Kernels of Precision::kBf16, which take activations in bf16, round each weight e^(score - max) to
// bf16 and divide by the sum of the rounded ones, which adds kPagedAttentionRounding max |c|
// (paged_attention.h derives it).
//
// Cost: 2 (2 R + P) operations a head and visible token. Without absorption, keys and values of
// every token have to be projected first, and attention then takes 2 (K + V) operations, K and V
// being the sizes of a key and a value: for the sizes of DeepSeek-V2 (R 512, P 64, K 192, V 128)
// 3.4 times fewer. So a long prompt costs more in this form; a decoded token never does, since
// without absorption it would project the whole context again.
//
// Kernels: "avx512", "avx2", "portable", "reference" (in double).
#ifndef PAGEMILL_CC_OPS_LATENT_ATTENTION_LATENT_ATTENTION_H_
#define PAGEMILL_CC_OPS_LATENT_ATTENTION_LATENT_ATTENTION_H_

#include <cstdint>

#include "cc/ops/op.h"

namespace pagemill::ops {

inline constexpr int64_t kMaxLatentSize = 1024;

const OpDefinition& LatentAttentionOp();

namespace latent_attention {
void RunReference(const OpCall& call, KernelContext& context);
}  // namespace latent_attention

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_LATENT_ATTENTION_LATENT_ATTENTION_H_
