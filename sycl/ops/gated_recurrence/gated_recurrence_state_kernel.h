#ifndef PAGEMILL_SYCL_OPS_GATED_RECURRENCE_GATED_RECURRENCE_STATE_KERNEL_H_
#define PAGEMILL_SYCL_OPS_GATED_RECURRENCE_GATED_RECURRENCE_STATE_KERNEL_H_

#include "sycl/ops/gated_recurrence/gated_recurrence_params.h"
#include "sycl/ops/kernel.h"
#include "sycl/ops/states/state_runs.h"

// A work-item for each channel of each request.
PAGEMILL_KERNEL void gated_recurrence_kernel(GatedRecurrenceParams p) {
  const int64_t request = GlobalId() / p.channels, channel = GlobalId() % p.channels;
  if (request >= p.batch.num_requests) return;
  const float rate = -8.0f * sycl::log1p(sycl::exp(p.rate[channel]));
  ForEachStateRun(p.batch, request, [&](const StateRun& run) {
    const bool starts = run.source == kNullPage;
    float h = starts ? 0.0f : p.states.Row<const float>(run.source)[channel];
    for (int32_t t = run.begin; t < run.end; ++t) {
      const float gate = Load(p.gate.Row<const Act>(t) + channel);
      const float log_a = rate / (1 + sycl::exp(-gate));
      float added = Load(p.x.Row<const Act>(t) + channel);
      if (!starts || t > run.begin) added *= sycl::sqrt(-sycl::expm1(2 * log_a));
      h = sycl::fma(sycl::exp(log_a), h, added);
      Store(p.y.Row<Act>(t) + channel, h);
    }
    if (run.target != kNullPage) p.states.Row<float>(run.target)[channel] = h;
  });
}

#endif  // PAGEMILL_SYCL_OPS_GATED_RECURRENCE_GATED_RECURRENCE_STATE_KERNEL_H_
