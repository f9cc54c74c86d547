// File: cc/ops/draw_tokens/draw_tokens.h
// Draws a token from each row of logits on the device that holds them, so that a later step can
// read it there. Runs after `argmax` and reads its results: rows without a temperature keep them.
//
//   inputs   x        f32 [L, V]
//            columns  i32 [L]     as `argmax` writes them for x
//            values   f32 [L]
//            draws    i32 [L, 8]  the words of a RowDraw (../sample/row_draw.h) for each row;
//                                 masks are applied before (../mask_tokens)
//   outputs  y        i32 [L]     the column drawn from row l: columns[l] if that is -1, or if the
//                                 temperature is 0
//   aliasing       y may be columns
//
// Error bound: that of DrawToken() in ../sample/sample.h. A column is the one that the reference
// draws unless the random number is within 1e-6 of the boundary between two tokens, or top_p within
// 1e-6 of a partial sum. Kernels share the passes of the host's sampler, so they draw the same
// token as a host that samples with the same instruction set.
//
// Workspace: V candidates (8 bytes each) for each thread.
#ifndef PAGEMILL_CC_OPS_DRAW_TOKENS_DRAW_TOKENS_H_
#define PAGEMILL_CC_OPS_DRAW_TOKENS_DRAW_TOKENS_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& DrawTokensOp();

namespace draw_tokens {
void RunReference(const OpCall& call, KernelContext& context);
}  // namespace draw_tokens

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_DRAW_TOKENS_DRAW_TOKENS_H_
