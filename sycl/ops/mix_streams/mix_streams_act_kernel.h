#ifndef PAGEMILL_SYCL_OPS_MIX_STREAMS_MIX_STREAMS_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_MIX_STREAMS_MIX_STREAMS_ACT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/mix_streams/mix_streams_params.h"

// A work-item for each element of the result.
PAGEMILL_KERNEL void mix_streams_kernel(MixStreamsParams p) {
  const int64_t row = GlobalId() / (p.mixes * p.width), in_row = GlobalId() % (p.mixes * p.width);
  if (row >= p.rows) return;
  const int64_t mix = in_row / p.width, i = in_row % p.width;
  const bool joins = p.y.data != nullptr;
  const float* weights = p.weights.Row<const float>(row) + mix * (p.streams + (joins ? 1 : 0));
  const Act* x = p.x.Row<const Act>(row);
  float sum = 0;
  for (int64_t n = 0; n < p.streams; ++n) {
    sum = sycl::fma(weights[n], Load(x + n * p.width + i), sum);
  }
  if (joins) sum = sycl::fma(weights[p.streams], Load(p.y.Row<const Act>(row) + i), sum);
  Store(p.z.Row<Act>(row) + in_row, sum);
}

#endif  // PAGEMILL_SYCL_OPS_MIX_STREAMS_MIX_STREAMS_ACT_KERNEL_H_
