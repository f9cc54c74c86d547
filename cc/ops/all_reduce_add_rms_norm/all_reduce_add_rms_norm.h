// File: cc/ops/all_reduce_add_rms_norm/all_reduce_add_rms_norm.h
// The sum over the ranks of a group, then residual addition and RMS normalization (made from
// all_reduce + add_rms_norm by a rewrite):
//   reduced = x of rank 0 + x of rank 1 ...
//   sum = reduced + residual;  y = sum / sqrt(mean(sum^2) + eps) * (w + weight_offset)
//
//   inputs      x, residual      act [N, H]
//               w                f32 [H]
//   outputs     y, sum, reduced  act [N, H]
//   attributes  axis, ranks (cc/ops/collective.h); eps > 0; weight_offset = 0
//   aliasing    sum may be residual; reduced may be x
//
// N is the same on all ranks, as are all operands but x.
//
// Result: the same bits as `all_reduce` followed by `add_rms_norm` with the kernel of the same
// name, row by row.
//
// Kernels: those of add_rms_norm. On a CPU they are the two ops one after the other; a device may
// normalize where it adds.
#ifndef PAGEMILL_CC_OPS_ALL_REDUCE_ADD_RMS_NORM_ALL_REDUCE_ADD_RMS_NORM_H_
#define PAGEMILL_CC_OPS_ALL_REDUCE_ADD_RMS_NORM_ALL_REDUCE_ADD_RMS_NORM_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& AllReduceAddRmsNormOp();

// A call as those of the two ops. `call` outlives it.
class AllReduceThenNorm {
 public:
  explicit AllReduceThenNorm(const OpCall& call);
  AllReduceThenNorm(const AllReduceThenNorm&) = delete;

  const OpCall& all_reduce() const { return all_reduce_; }
  const OpCall& add_rms_norm() const { return add_rms_norm_; }

 private:
  TensorView norm_inputs_[3];
  OpCall all_reduce_, add_rms_norm_;
};

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ALL_REDUCE_ADD_RMS_NORM_ALL_REDUCE_ADD_RMS_NORM_H_
