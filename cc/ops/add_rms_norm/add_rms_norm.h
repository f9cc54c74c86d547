// File: cc/ops/add_rms_norm/add_rms_norm.h
// Residual addition and RMS normalization in one pass (made from add + rms_norm by a rewrite):
//   sum = x + residual;  y = sum / sqrt(mean(sum^2) + eps) * (w + weight_offset)
//
//   inputs   x, residual  act [N, ...]   rows of H elements, any trailing shape
//            w            f32 [H]
//   outputs  y            act [N, ...]   rows of H elements
//            sum          act [N, H]     of one dimension: rms_norm divides rows of several
//   attributes  eps > 0; weight_offset = 0
//   aliasing    y may be x; sum may be residual
//
// Result: the same bits as `add` followed by `rms_norm` with the kernel of the same name, row by
// row: y is the norm of the stored sum.
//
// Kernels: "avx512", "avx2", "portable" (those of rms_norm), "reference" (accumulates in double).
#ifndef PAGEMILL_CC_OPS_ADD_RMS_NORM_ADD_RMS_NORM_H_
#define PAGEMILL_CC_OPS_ADD_RMS_NORM_ADD_RMS_NORM_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

struct AddRmsNormArgs {
  TensorView x, residual, w, y, sum;
  float eps = 0;
  float weight_offset = 0;
};

AddRmsNormArgs ToAddRmsNormArgs(const OpCall& call);
const OpDefinition& AddRmsNormOp();

void AddRmsNormReference(const OpCall& call, KernelContext& context);
int64_t AddRmsNormReferenceWorkspaceBytes(const OpCall& call, int32_t num_threads);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ADD_RMS_NORM_ADD_RMS_NORM_H_
