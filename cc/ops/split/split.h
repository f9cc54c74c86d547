// File: cc/ops/split/split.h
// Divides the last dimension of a value into two values, such as the rotated and the other elements
// of a query, which one projection computes together.
//
//   inputs   x     act [N, ..., D]
//   outputs  a, b  act [N, ..., at] and [N, ..., D - at], perhaps with rows of another shape
//   attributes     at, from 1 to D - 1
//   aliasing       none
//
// Exact: a copy.
#ifndef PAGEMILL_CC_OPS_SPLIT_SPLIT_H_
#define PAGEMILL_CC_OPS_SPLIT_SPLIT_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& SplitOp();

namespace split {
void RunPortable(const OpCall& call, KernelContext& context);
void RunReference(const OpCall& call, KernelContext& context);
}  // namespace split

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SPLIT_SPLIT_H_
