#ifndef PAGEMILL_SYCL_OPS_WKV_WKV_STATE_KERNEL_H_
#define PAGEMILL_SYCL_OPS_WKV_WKV_STATE_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/states/state_runs.h"
#include "sycl/ops/wkv/wkv_params.h"

// Numerator and denominator of a weighted mean, both divided by e^exponent.
struct WkvSums {
  float numerator, denominator, exponent;
};

// The sums with another value, whose weight is e^exponent.
inline WkvSums AddValue(const WkvSums& sums, float value, float exponent) {
  const float largest = sycl::fmax(sums.exponent, exponent);
  const float before = sycl::exp(sums.exponent - largest), now = sycl::exp(exponent - largest);
  return {sycl::fma(before, sums.numerator, now * value),
          sycl::fma(before, sums.denominator, now), largest};
}

// A work-item for each channel of each request.
PAGEMILL_KERNEL void wkv_kernel(WkvParams p) {
  const int64_t request = GlobalId() / p.channels, channel = GlobalId() % p.channels;
  if (request >= p.batch.num_requests) return;
  const float rate = sycl::exp(p.decay[channel]), first = p.first[channel];
  ForEachStateRun(p.batch, request, [&](const StateRun& run) {
    const bool starts = run.source == kNullPage;
    WkvSums sums{};
    if (!starts) {
      const float* source = p.states.Row<const float>(run.source) + channel;
      sums = {source[0], source[p.channels], source[2 * p.channels]};
    }
    for (int32_t t = run.begin; t < run.end; ++t) {
      const float key = Load(p.key.Row<const Act>(t) + channel);
      const float value = Load(p.value.Row<const Act>(t) + channel);
      Act* y = p.y.Row<Act>(t) + channel;
      if (starts && t == run.begin) {  // the request's first token
        Store(y, value);
        sums = {value, 1, key};
        continue;
      }
      const WkvSums all = AddValue(sums, value, first + key);
      Store(y, all.numerator / all.denominator);
      sums.exponent -= rate;
      sums = AddValue(sums, value, key);
    }
    if (run.target == kNullPage) return;
    float* target = p.states.Row<float>(run.target) + channel;
    target[0] = sums.numerator;
    target[p.channels] = sums.denominator;
    target[2 * p.channels] = sums.exponent;
  });
}

#endif  // PAGEMILL_SYCL_OPS_WKV_WKV_STATE_KERNEL_H_
