#ifndef PAGEMILL_SYCL_OPS_SELECTIVE_SCAN_SELECTIVE_SCAN_STATE_KERNEL_H_
#define PAGEMILL_SYCL_OPS_SELECTIVE_SCAN_SELECTIVE_SCAN_STATE_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/selective_scan/selective_scan_params.h"
#include "sycl/ops/states/state_column.h"
#include "sycl/ops/states/state_runs.h"

// A sub-group for each channel of a request.
PAGEMILL_KERNEL void selective_scan_kernel(SelectiveScanParams p) {
  const int64_t request = GlobalSubGroup() / p.channels, channel = GlobalSubGroup() % p.channels;
  if (request >= p.batch.num_requests) return;
  StateColumn rates(p.states, /*stride=*/1), state(p.states, /*stride=*/p.channels);
  rates.Load(p.a_log.Row<const float>(channel));
  rates.ForEachRow([](float& rate, int32_t) { rate = -sycl::exp(rate); });
  ForEachStateRun(p.batch, request, [&](const StateRun& run) {
    const bool starts = run.source == kNullPage;
    state.Load(starts ? nullptr : p.state_pages.Row<const float>(run.source) + channel);
    for (int32_t t = run.begin; t < run.end; ++t) {
      const Act *b = p.b.Row<const Act>(t), *c = p.c.Row<const Act>(t);
      const float dt = Softplus(Load(p.dt.Row<const Act>(t) + channel) + p.dt_bias[channel]);
      const float x = Load(p.x.Row<const Act>(t) + channel), added = dt * x;
      float sum = 0;
      state.ForEachRow([&](float& h, int32_t n) {
        h = sycl::fma(sycl::exp(dt * rates.At(n)), h, added * Load(b + n));
        sum = sycl::fma(h, Load(c + n), sum);
      });
      sum = sycl::fma(p.d[channel], x, LaneSum(sum));
      if (Lane() == 0) Store(p.y.Row<Act>(t) + channel, sum);
    }
    if (run.target == kNullPage) return;
    state.Store(p.state_pages.Row<float>(run.target) + channel);
  });
}

#endif  // PAGEMILL_SYCL_OPS_SELECTIVE_SCAN_SELECTIVE_SCAN_STATE_KERNEL_H_
