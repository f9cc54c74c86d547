// File: cuda/ops/paged_attention/split_state.h
// The softmax of a row over the keys of splits, merged split by split in their order. Every kernel
// that merges inlines these functions, whose operations the compiler cannot fuse otherwise, so all get the
// same bits.
//
//   SoftmaxState total = StateBefore(p, head);  // and its values 0
//   const MergeFactors factors = Merge(split, &total);
//   value = Merged(value, split_value, factors);
//   y = Mean(value, total, p);
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_SPLIT_STATE_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_SPLIT_STATE_H_

#include "cuda/gpu_vendor.h"
#include "cuda/ops/attention/weighted_values.h"
#include "cuda/ops/paged_attention/attention_scores.h"

namespace pagemill::gpu {

struct MergeFactors {
  float total, split;
};

// A sink counts as a key without a value.
PAGEMILL_DEVICE SoftmaxState StateBefore(const AttentionParams& p, int64_t head) {
  if (p.sinks == nullptr) return {-INFINITY, 0};
  return {p.sinks[head], 1};
}

PAGEMILL_DEVICE MergeFactors Merge(const SoftmaxState& split, SoftmaxState* total) {
  if (split.most == -INFINITY) return {1, 0};
  const float most = fmaxf(total->most, split.most);
  const MergeFactors factors = {total->most == most ? 1 : Exp(total->most - most),
                                split.most == most ? 1 : Exp(split.most - most)};
  *total = {most, fmaf(split.sum, factors.split, RoundedProduct(total->sum, factors.total))};
  return factors;
}

PAGEMILL_DEVICE float Merged(float total, float split, const MergeFactors& factors) {
  return fmaf(split, factors.split, RoundedProduct(total, factors.total));
}

PAGEMILL_DEVICE float Mean(float value, const SoftmaxState& total, const AttentionParams& p) {
  return RoundedProduct(value / total.sum, p.v_scale);
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_SPLIT_STATE_H_
