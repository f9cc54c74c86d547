// File: cc/ops/concat/concat.h
// Puts the rows of several values side by side.
//
//   inputs   x0, x1, ...  act [N, ...]  two to kMaxConcatInputs, rows of any trailing shapes
//   outputs  y            act [N, ...]  rows with the elements of all inputs, in their order
//   aliasing none
//
// Exact: a copy.
#ifndef PAGEMILL_CC_OPS_CONCAT_CONCAT_H_
#define PAGEMILL_CC_OPS_CONCAT_CONCAT_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

inline constexpr size_t kMaxConcatInputs = 8;

const OpDefinition& ConcatOp();

namespace concat {
void RunPortable(const OpCall& call, KernelContext& context);
void RunReference(const OpCall& call, KernelContext& context);
}  // namespace concat

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_CONCAT_CONCAT_H_
