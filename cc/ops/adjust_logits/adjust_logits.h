// File: cc/ops/adjust_logits/adjust_logits.h
// Adds biases to rows of logits and applies the penalties of tokens that occurred, before a token
// is chosen from each row (docs/sampling.md, 3 to 5). Device executors run it before `argmax`.
//
//   inputs   x          f32 [L, V]  written
//            counts     i32 [S, V]  what is counted of the tokens of each slot (../count_tokens)
//            biases     i32 [N, 3]  the words of a LogitBias each (../sample/row_adjustments.h)
//            penalties  i32 [P, 7]  the words of a RowPenalties each
//            ids        i32 [T]     the step's tokens
//   outputs  none
//   aliasing none
//
//   x[row, token] += bias, for each bias, then x[row, v] = PenalizedLogit(x[row, v], counted), for
//   each v of each row with penalties; counted = CountedForRow(counts[slot, v], v, ids)
//
// No two biases have the same row and token, and no two penalties the same row; drafts are among
// the ids. Logits to which nothing applies keep their bits; NaN and +inf become NaN or +inf, so
// that invalid logits are detected behind it.
//
// Error bound: frequency * count + presence may be rounded once or twice, so a penalized logit is
// off by 2^-23 * |frequency * count| at most, beside its own rounding.
#ifndef PAGEMILL_CC_OPS_ADJUST_LOGITS_ADJUST_LOGITS_H_
#define PAGEMILL_CC_OPS_ADJUST_LOGITS_ADJUST_LOGITS_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& AdjustLogitsOp();

namespace adjust_logits {
void RunReference(const OpCall& call, KernelContext& context);
}  // namespace adjust_logits

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ADJUST_LOGITS_ADJUST_LOGITS_H_
