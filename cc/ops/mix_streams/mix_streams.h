// File: cc/ops/mix_streams/mix_streams.h
// Mixes the residual streams of each token, and what a branch adds, to other streams, by the
// weights of `stream_weights`: reading N streams for a branch (M = 1), or joining its result
// (M = N).
//
//   z[t, m] = sum_n weights[t, m, n] x[t, n] (+ weights[t, m, N] y[t])
//
//   inputs   x        act [T, ...]     rows of N W elements: the streams side by side
//            weights  f32 [T, M, J], or [T, J] for M = 1;  J = N, or N + 1 with y
//            y        act [T, ...]     rows of W elements, or left out
//   outputs  z        act [T, ...]     rows of M W elements
//   aliasing none
//
// Added in the order of n, so z[t] depends on row t alone.
//
// Error bound: |z - exact| <= (J + 1) 2^-24 sum_n |weights[t, m, n] x[t, n]|, y included.
//
// Kernels: "portable", "reference" (adds in double).
#ifndef PAGEMILL_CC_OPS_MIX_STREAMS_MIX_STREAMS_H_
#define PAGEMILL_CC_OPS_MIX_STREAMS_MIX_STREAMS_H_

#include <cstdint>

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& MixStreamsOp();

namespace mix_streams {

struct Args {
  TensorView x, weights, y, z;  // y of rank 0 if there is none
  int64_t streams = 0;          // N
  int64_t mixes = 0;            // M
  int64_t width = 0;            // W

  int64_t weights_of_mix() const { return streams + (y.rank > 0 ? 1 : 0); }
};

Args ToArgs(const OpCall& call);

void RunPortable(const OpCall& call, KernelContext& context);
void RunReference(const OpCall& call, KernelContext& context);
}  // namespace mix_streams

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_MIX_STREAMS_MIX_STREAMS_H_
