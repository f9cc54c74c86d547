// File: cc/ops/embedding/embedding.h
// Row gather from a table of weights: y[n] = scale * dequantized W[ids[n]].
//
//   inputs   ids   i32 [N], each in [0, V) (the runner checks token ids before a step), unless
//                  `outside` is set
//            W     f32, bf16, f16 or a block format [V, H]; H is a multiple of its block size
//   outputs  y     act [N, H]
//   attributes     scale = 1; outside = -1, or the row, of [0, V), that other ids read: of a table
//                  that has rows for a part of the vocabulary
//   aliasing       none
//
// Kernels: "packed_blocks" and "packed_bf16" read a table that `linear` has packed (a tied
// vocabulary projection) from its slices, so that it is in memory once, and other tables as stored;
// "portable", "reference".
//
// Exact: dequantization gives the same bits everywhere, the scale is one float multiplication, and
// the result is rounded to `act` at the end.
#ifndef PAGEMILL_CC_OPS_EMBEDDING_EMBEDDING_H_
#define PAGEMILL_CC_OPS_EMBEDDING_EMBEDDING_H_

#include <cstdint>

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& EmbeddingOp();

namespace embedding {
// The row that `id` reads.
int32_t RowOf(const OpCall& call, int32_t id);

// The kernels; y must not overlap W. Both write y directly, without workspace.
void RunPortable(const OpCall& call, KernelContext& context);
void RunReference(const OpCall& call, KernelContext& context);
}  // namespace embedding

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_EMBEDDING_EMBEDDING_H_
