#ifndef PAGEMILL_SYCL_OPS_DEPTHWISE_CONV_DEPTHWISE_CONV_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_DEPTHWISE_CONV_DEPTHWISE_CONV_ACT_KERNEL_H_

#include "sycl/ops/depthwise_conv/depthwise_conv_params.h"
#include "sycl/ops/kernel.h"

// A work-item for each channel of each result.
PAGEMILL_KERNEL void depthwise_conv_kernel(DepthwiseConvParams p) {
  const int64_t i = GlobalId() / p.channels, channel = GlobalId() % p.channels;
  const int64_t t = i / p.results, j = i % p.results;
  if (t >= p.tokens) return;
  const int32_t* const from = p.listed + (p.is_indexed ? j : t) * p.taps;
  float sum = p.bias == nullptr ? 0.0f : p.bias[channel];
  for (int64_t k = 0; k < p.taps; ++k) {
    const int32_t row = from[k];
    if (row < 0 || (p.is_indexed && row >= p.positions)) continue;
    const Act* const x =
        p.is_indexed ? p.x.Row<const Act>(t) + row * p.channels : p.x.Row<const Act>(row);
    sum = sycl::fma(p.w[channel * p.taps + k], Load(x + channel), sum);
  }
  Store(p.y.Row<Act>(t) + j * p.channels + channel, sum);
}

#endif  // PAGEMILL_SYCL_OPS_DEPTHWISE_CONV_DEPTHWISE_CONV_ACT_KERNEL_H_
