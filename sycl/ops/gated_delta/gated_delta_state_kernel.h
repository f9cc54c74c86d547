#ifndef PAGEMILL_SYCL_OPS_GATED_DELTA_GATED_DELTA_STATE_KERNEL_H_
#define PAGEMILL_SYCL_OPS_GATED_DELTA_GATED_DELTA_STATE_KERNEL_H_

#include "sycl/ops/gated_delta/gated_delta_params.h"
#include "sycl/ops/kernel.h"
#include "sycl/ops/states/state_column.h"
#include "sycl/ops/states/state_runs.h"

// Where q, k and v of a head begin in a row of qkv.
struct DeltaOffsets {
  int64_t q, k, v;

  DeltaOffsets(const GatedDeltaParams& p, int32_t head) {
    const int32_t of_group = p.heads / p.groups;  // heads
    const int32_t group = p.in_turn ? head % p.groups : head / of_group;
    if (p.by_group) {
      q = int64_t{group} * (2 * p.keys + of_group * p.values);
      k = q + p.keys;
      v = k + p.keys + int64_t{head % of_group} * p.values;
    } else {
      q = int64_t{group} * p.keys;
      k = q + int64_t{p.groups} * p.keys;
      v = 2 * int64_t{p.groups} * p.keys + int64_t{head} * p.values;
    }
  }
};

// 1 / |x|, of the sub-group's row.
inline float InverseNorm(const Act* x, int32_t size, float eps) {
  float squares = 0;
  for (int32_t i = Lane(); i < size; i += kLanes) {
    squares = sycl::fma(Load(x + i), Load(x + i), squares);
  }
  return 1.0f / sycl::sqrt(LaneSum(squares) + eps);
}

// A sub-group for each column of a head's state of a request.
PAGEMILL_KERNEL void gated_delta_kernel(GatedDeltaParams p) {
  const int64_t columns = int64_t{p.heads} * p.values;
  const int64_t request = GlobalSubGroup() / columns, column = GlobalSubGroup() % columns;
  if (request >= p.batch.num_requests) return;
  const auto head = static_cast<int32_t>(column / p.values);
  const int64_t in_head = column % p.values;
  const int64_t in_page = int64_t{head} * p.keys * p.values + in_head;
  const DeltaOffsets offsets(p, head);
  const float rate = -sycl::exp(p.a_log[head]);
  const float q_scale = 1.0f / sycl::sqrt(static_cast<float>(p.keys));
  StateColumn state(p.keys, /*stride=*/p.values);
  ForEachStateRun(p.batch, request, [&](const StateRun& run) {
    const bool starts = run.source == kNullPage;
    state.Load(starts ? nullptr : p.state_pages.Row<const float>(run.source) + in_page);
    for (int32_t t = run.begin; t < run.end; ++t) {
      const Act* row = p.qkv.Row<const Act>(t);
      const Act *q = row + offsets.q, *k = row + offsets.k;
      const Act* a = p.a.Row<const Act>(t) + int64_t{head} * p.rates;
      const float* dt_bias = p.dt_bias + int64_t{head} * p.rates;
      const float of_q = InverseNorm(q, p.keys, p.norm_eps) * q_scale;
      const float of_k = InverseNorm(k, p.keys, p.norm_eps);
      float predicted = 0;
      state.ForEachRow([&](float& h, int32_t i) {
        const int32_t at = p.rates == 1 ? 0 : i;
        h *= sycl::exp(rate * Softplus(Load(a + at) + dt_bias[at]));
        predicted = sycl::fma(h, Load(k + i) * of_k, predicted);
      });
      const float b = Load(p.b.Row<const Act>(t) + head);
      const float share = p.share_scale / (1 + sycl::exp(-b));
      const float change = share * (Load(row + offsets.v + in_head) - LaneSum(predicted));
      float sum = 0;
      state.ForEachRow([&](float& h, int32_t i) {
        h = sycl::fma(Load(k + i) * of_k, change, h);
        sum = sycl::fma(h, Load(q + i) * of_q, sum);
      });
      sum = LaneSum(sum);
      if (Lane() == 0) Store(p.y.Row<Act>(t) + column, sum);
    }
    if (run.target == kNullPage) return;
    state.Store(p.state_pages.Row<float>(run.target) + in_page);
  });
}

#endif  // PAGEMILL_SYCL_OPS_GATED_DELTA_GATED_DELTA_STATE_KERNEL_H_
