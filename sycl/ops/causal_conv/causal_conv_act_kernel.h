#ifndef PAGEMILL_SYCL_OPS_CAUSAL_CONV_CAUSAL_CONV_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_CAUSAL_CONV_CAUSAL_CONV_ACT_KERNEL_H_

#include "cc/ops/states/state_pages.h"
#include "sycl/ops/causal_conv/causal_conv_params.h"
#include "sycl/ops/kernel.h"
#include "sycl/ops/request.h"

// The element of a channel in a row of the step, or in one before row `begin`, whose state is in
// page `source`.
inline float ConvElement(const CausalConvParams& p, int32_t source, int32_t begin, int32_t row,
                         int64_t channel) {
  if (row >= begin) return Load(p.x.Row<const Act>(row) + channel);
  if (source == pagemill::ops::kNullPage) return 0;
  return p.states.Row<const float>(source)[(p.taps - 1 - (begin - row)) * p.channels + channel];
}

// A work-item for each channel of each token.
PAGEMILL_KERNEL void causal_conv_kernel(CausalConvParams p) {
  const auto row = static_cast<int32_t>(GlobalId() / p.channels);
  const int64_t channel = GlobalId() % p.channels;
  if (row >= p.rows || row >= p.query_start[p.requests]) return;
  const int32_t request = RequestOf(p.query_start, p.requests, row);
  const int32_t begin = p.query_start[request];
  const int32_t position = p.seq_lens[request] - (p.query_start[request + 1] - begin);
  const int32_t source = position > 0
                             ? pagemill::ops::StateTable(p, request).PageAfter(position)
                             : pagemill::ops::kNullPage;
  float sum = p.bias == nullptr ? 0.0f : p.bias[channel];
  for (int32_t j = 0; j < p.taps; ++j) {
    const float x = ConvElement(p, source, begin, row - (p.taps - 1) + j, channel);
    sum = sycl::fma(p.w[channel * p.taps + j], x, sum);
  }
  Store(p.y.Row<Act>(row) + channel, p.silu ? sum / (1 + sycl::exp(-sum)) : sum);
}

// A work-item for each channel of each request. Comes after all rows have read the states.
PAGEMILL_KERNEL void store_conv_states_kernel(CausalConvParams p) {
  const int64_t request = GlobalId() / p.channels, channel = GlobalId() % p.channels;
  if (request >= p.requests) return;
  pagemill::ops::ForEachStateRun(p, request, [&](const pagemill::ops::StateRun& run) {
    if (run.target == pagemill::ops::kNullPage) return;  // padding requests
    // Ascending: rows move towards the oldest, and the target may be the source.
    for (int32_t k = 0; k < p.taps - 1; ++k) {
      p.states.Row<float>(run.target)[k * p.channels + channel] =
          ConvElement(p, run.source, run.begin, run.end - (p.taps - 1) + k, channel);
    }
  });
}

#endif  // PAGEMILL_SYCL_OPS_CAUSAL_CONV_CAUSAL_CONV_ACT_KERNEL_H_
