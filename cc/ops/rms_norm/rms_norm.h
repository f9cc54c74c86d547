// File: cc/ops/rms_norm/rms_norm.h
// Root mean square normalization of the last dimension:
//   y = x / sqrt(mean(x^2) + eps) * (w + weight_offset)
//
//   inputs   x  act [N, ..., H]   any rank; every run of H elements is one row
//            w  f32 [H], or [G * H] for x [N, G, H]: weights of each group
//   outputs  y  act [N, ...]      as many elements a row, perhaps in another shape
//   attributes  eps > 0; weight_offset = 0 (Gemma stores w - 1: 1)
//   aliasing    none
//
// Result: a row's bits depend on that row and the kernel alone. Error bound: relative 2e-6 of the
// exact value for H up to 2^16 (the mean of squares is summed in kLanes x 4 chains of fp32, each
// shorter than H / 16; its square root halves the error).
//
// Kernels: "avx512", "avx2", "portable", "reference" (accumulates in double).
#ifndef PAGEMILL_CC_OPS_RMS_NORM_RMS_NORM_H_
#define PAGEMILL_CC_OPS_RMS_NORM_RMS_NORM_H_

#include "cc/ops/op.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {

struct RmsNormArgs {
  TensorView x, w, y;
  float eps = 0;
  float weight_offset = 0;

  int64_t size() const { return x.shape[static_cast<size_t>(x.rank) - 1]; }
  // Weights of row `group` of a token.
  const float* WeightsOf(int64_t group) const {
    return w.Data<const float>() + (w.shape[0] == size() ? 0 : group * size());
  }
};

RmsNormArgs ToRmsNormArgs(const OpCall& call);
const OpDefinition& RmsNormOp();

void RmsNormReference(const OpCall& call, KernelContext& context);
inline constexpr F32Kernel kRmsNormReference{.act_inputs = 0b1, .run = RmsNormReference};

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_RMS_NORM_RMS_NORM_H_
