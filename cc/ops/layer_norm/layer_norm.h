// File: cc/ops/layer_norm/layer_norm.h
// Layer normalization of the last dimension: y = (x - mean(x)) / sqrt(var(x) + eps) *
// (w + weight_offset) + b, with the population variance.
//
//   inputs   x     act [N, ..., H]   any rank; every run of H elements is one row
//            w, b  f32 [H], or both [G * H] for x [N, G, H]: weights of each group
//   outputs  y     act [N, ...]      as many elements a row, perhaps in another shape
//   attributes  eps > 0; weight_offset = 0 (Nemotron stores w - 1: 1)
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
  float weight_offset = 0;

  int64_t size() const { return x.shape[static_cast<size_t>(x.rank) - 1]; }
  // Of w and b, the first element for row `group` of a token.
  int64_t ParametersOf(int64_t group) const { return w.shape[0] == size() ? 0 : group * size(); }
};

LayerNormArgs ToLayerNormArgs(const OpCall& call);
const OpDefinition& LayerNormOp();

void LayerNormReference(const OpCall& call, KernelContext& context);
void LayerNormPortable(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_LAYER_NORM_LAYER_NORM_H_
