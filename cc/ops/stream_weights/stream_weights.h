// File: cc/ops/stream_weights/stream_weights.h
// The weights by which N residual streams are mixed around a branch: manifold-constrained
// hyper-connections (Xie et al., 2025; DeepSeek-V4, section 2.2). `mix_streams` applies them.
//
//   inputs   mixes  f32 [T, N (N + 2)], or [T, N]: a projection of the streams: of N inputs, N
//                   results and N^2 pairs of streams, one after the other
//            base   f32, as long as a row of mixes
//            scale  f32 [3], or [1]: of the three kinds
//   outputs  before  f32 [T, N]         what the branch reads of each stream:
//                                       sigmoid(scale[0] mixes + base) + eps
//            after   f32 [T, N, N + 1]  unless rows of mixes have N elements: row k has what stream
//                                       k becomes of the streams before (the first N), and of the
//                                       branch's result: 2 sigmoid(scale[1] mixes + base)
//   attributes  iterations >= 1, at most 1000;  eps >= 0
//   aliasing    none
//
// after[k, j] = c[j, k], where c is softmax(scale[2] mixes + base) + eps over the second index of
// each pair (j, k), made nearly doubly stochastic (Sinkhorn and Knopp): its columns are divided by
// their sums + eps, then `iterations` - 1 times its rows and its columns.
//
// Error bound: 4e-7 (8 + 4 iterations), relative: each division of a normalized matrix adds an
// error of two roundings, and those of sums of at most N. Result: a row's bits depend on that row
// alone.
//
// Kernels: "portable", "reference" (in double).
#ifndef PAGEMILL_CC_OPS_STREAM_WEIGHTS_STREAM_WEIGHTS_H_
#define PAGEMILL_CC_OPS_STREAM_WEIGHTS_STREAM_WEIGHTS_H_

#include <cstdint>

#include "cc/ops/op.h"

namespace pagemill::ops {

inline constexpr int64_t kMaxStreams = 16;

const OpDefinition& StreamWeightsOp();

namespace stream_weights {
void RunReference(const OpCall& call, KernelContext& context);
}  // namespace stream_weights

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_STREAM_WEIGHTS_STREAM_WEIGHTS_H_
