// File: cc/ops/scaled_linear/scaled_linear_ref.h
// The plain form of `scaled_linear`: every product in double.
#ifndef PAGEMILL_CC_OPS_SCALED_LINEAR_SCALED_LINEAR_REF_H_
#define PAGEMILL_CC_OPS_SCALED_LINEAR_SCALED_LINEAR_REF_H_

#include "cc/ops/op.h"

namespace pagemill::ops::scaled {

void RunReference(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops::scaled

#endif  // PAGEMILL_CC_OPS_SCALED_LINEAR_SCALED_LINEAR_REF_H_
