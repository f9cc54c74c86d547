// File: cc/ops/mask_tokens/mask_tokens.h
// Excludes the tokens that the masks of rows do not allow, before a token is chosen from each row.
// Device executors run it before `argmax`.
//
//   inputs   x      f32 [L, V]
//            draws  i32 [L, 8]  the words of a RowDraw (../sample/row_draw.h) for each row; its
//                               `mask` is the index of the row's mask, -1 = none
//            masks  i32 [M, W]  W = ceil(V / 32): bit v % 32, counted from the least significant,
//                               of word v / 32 is set if column v is allowed
//   outputs  y      f32 [L, V]  x[l, v] if it is allowed or the row has no mask, else -inf; NaN and
//                               +inf stay, so that invalid logits are detected under any mask
//   aliasing       y may be x
//
// Exact. Bits beyond column V are ignored.
#ifndef PAGEMILL_CC_OPS_MASK_TOKENS_MASK_TOKENS_H_
#define PAGEMILL_CC_OPS_MASK_TOKENS_MASK_TOKENS_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& MaskTokensOp();

namespace mask_tokens {
void RunPortable(const OpCall& call, KernelContext& context);
void RunReference(const OpCall& call, KernelContext& context);
}  // namespace mask_tokens

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_MASK_TOKENS_MASK_TOKENS_H_
