// File: cc/ops/moe_combine/moe_combine.h
// The end of a mixture-of-experts layer: the weighted sum of the outputs of a token's experts.
//
//   y[n] = sum_j weights[n, j] * x[n, j]      (or x[n], the same for all j)
//
//   inputs   x        act [N, J, ...]  rows of H elements, any trailing shape; or [N, ...], H
//                                      elements that all choices share
//            weights  f32 [N, J]
//   outputs  y        act [N, ...]     rows of H elements
//   aliasing    none
//
// Added in the order of j, so y[n] depends on row n alone.
//
// Error bound: |y - exact| <= (J + 1) * 2^-24 * sum_j |weights[n, j] x[n, j]|: a product and at
// most J additions, each rounded once.
//
// Kernels: "portable", "reference" (adds in double).
#ifndef PAGEMILL_CC_OPS_MOE_COMBINE_MOE_COMBINE_H_
#define PAGEMILL_CC_OPS_MOE_COMBINE_MOE_COMBINE_H_

#include <cstdint>

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& MoeCombineOp();

namespace moe_combine {
// Elements from one choice of a token to the next; 0 if they share one row.
int64_t ChoiceStep(const OpCall& call);

void RunPortable(const OpCall& call, KernelContext& context);
void RunReference(const OpCall& call, KernelContext& context);
}  // namespace moe_combine

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_MOE_COMBINE_MOE_COMBINE_H_
