// File: cc/ops/layer_norm/layer_norm.h
// Layer normalization of each row: y = (x - mean(x)) / sqrt(var(x) + eps) * w + b, with the
// population variance.
//
//   inputs   x     act [N, ...]   rows of H elements, any trailing shape
//            w, b  f32 [H]
//   outputs  y     act [N, ...]   rows of H elements
//   attributes  eps > 0
//   aliasing    none
//
// Result: a row's bits depend on that row and the kernel alone. Error bound: 4e-6 (|x - mean| /
// sqrt(var + eps) |w| + |b|) + 4e-6 |mean| / sqrt(var + eps) |w|, for H up to 2^16: mean and
// variance are summed in fp32, the variance from the differences to the mean (a second pass over
// the row, which is in the first-level cache), so a large mean costs only its own rounding.
//
// Kernels: "portable", "reference" (accumulates in double). Encoders with a few hundred dimensions
// spend under 1 % of a step here.
#ifndef PAGEMILL_CC_OPS_LAYER_NORM_LAYER_NORM_H_
#define PAGEMILL_CC_OPS_LAYER_NORM_LAYER_NORM_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

struct LayerNormArgs {
  TensorView x, w, b, y;
  float eps = 0;
};

LayerNormArgs ToLayerNormArgs(const OpCall& call);
const OpDefinition& LayerNormOp();

void LayerNormReference(const OpCall& call, KernelContext& context);
void LayerNormPortable(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_LAYER_NORM_LAYER_NORM_H_
