// File: cc/ops/argmax/argmax.h
// The largest element of each row and its column: the most likely token, found on the device that
// holds the logits, so that a later op or step can read it there.
//
//   inputs   x        f32 [L, V]
//   outputs  columns  i32 [L]  the lowest column that has the largest element (0 and -0 are equal);
//                              -1 if some element is NaN or +inf, or all are -inf
//            values   f32 [L]  that element; with column -1, +inf in the first of these cases, -inf
//                              in the second
//   aliasing       none
//
// Exact. The result of a row is its RowMaximum (../row_maxima.h).
#ifndef PAGEMILL_CC_OPS_ARGMAX_ARGMAX_H_
#define PAGEMILL_CC_OPS_ARGMAX_ARGMAX_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& ArgmaxOp();

namespace argmax {
void RunPortable(const OpCall& call, KernelContext& context);
void RunReference(const OpCall& call, KernelContext& context);
}  // namespace argmax

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ARGMAX_ARGMAX_H_
