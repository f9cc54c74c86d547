// File: cc/ops/merge_attention/merge_attention.h
// Merges the attention of the same queries over one or two disjoint sets of keys, and sinks, to the
// attention over all of them.
//
//   y[t, h] = sum_s e^lse_s[t, h] x_s[t, h] / (sum_s e^lse_s[t, h] + e^sinks[h])
//
//   inputs   sinks  f32 [H], or missing (a view of rank 0)
//            x_0    act [T, H, D]  attention over a set of keys, and
//            lse_0  f32 [T, H]     the logarithm of the sum of its e^score; -infinity if it is
//                                  empty
//            x_1, lse_1            likewise, or left out
//   outputs  y      act [T, ...]   rows of H D elements, any trailing shape; zeros if all sets are
//                                  empty
//   aliasing y may be x_0
//
// Error bound: |y - exact| <= 1e-6 max |x|: each share has the error of one Exp() and two sums.
// Result: a row's bits depend on that row alone. An lse of NaN or +infinity gives NaN.
//
// Kernels: "portable", "reference" (in double).
#ifndef PAGEMILL_CC_OPS_MERGE_ATTENTION_MERGE_ATTENTION_H_
#define PAGEMILL_CC_OPS_MERGE_ATTENTION_MERGE_ATTENTION_H_

#include <cstddef>
#include <cstdint>

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& MergeAttentionOp();

namespace merge_attention {

inline constexpr size_t kMaxSets = 2;

struct Args {
  const float* sinks = nullptr;  // [heads] or null
  TensorView x[kMaxSets], lse[kMaxSets];
  TensorView y;
  size_t sets = 1;

  int64_t heads() const { return lse[0].shape[1]; }
  int64_t size() const { return y.RowElements() / heads(); }  // of a head
};

Args ToArgs(const OpCall& call);

void RunPortable(const OpCall& call, KernelContext& context);
void RunReference(const OpCall& call, KernelContext& context);
}  // namespace merge_attention

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_MERGE_ATTENTION_MERGE_ATTENTION_H_
