// File: cc/ops/scale/scale.h
// Multiplies by a number: y = x * by.
//
//   inputs   x  act [N, ...]   rows of H elements, any trailing shape
//   outputs  y  act [N, ...]   rows of H elements
//   attributes  by: finite
//   aliasing    y may be x
//
// Result: exact rounding of each product; every kernel gives the same bits.
//
// Kernels: "portable", "reference".
#ifndef PAGEMILL_CC_OPS_SCALE_SCALE_H_
#define PAGEMILL_CC_OPS_SCALE_SCALE_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

struct ScaleArgs {
  TensorView x, y;
  float by = 0;
};

ScaleArgs ToScaleArgs(const OpCall& call);
const OpDefinition& ScaleOp();

void ScaleReference(const OpCall& call, KernelContext& context);
void ScalePortable(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SCALE_SCALE_H_
