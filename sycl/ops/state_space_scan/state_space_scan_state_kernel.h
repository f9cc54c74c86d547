#ifndef PAGEMILL_SYCL_OPS_STATE_SPACE_SCAN_STATE_SPACE_SCAN_STATE_KERNEL_H_
#define PAGEMILL_SYCL_OPS_STATE_SPACE_SCAN_STATE_SPACE_SCAN_STATE_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/state_space_scan/state_space_scan_params.h"
#include "sycl/ops/states/state_column.h"
#include "sycl/ops/states/state_runs.h"

// A sub-group for each column of a head's state of a request.
PAGEMILL_KERNEL void state_space_scan_kernel(StateSpaceScanParams p) {
  const int64_t columns = int64_t{p.heads} * p.head_dim;
  const int64_t request = GlobalSubGroup() / columns, column = GlobalSubGroup() % columns;
  if (request >= p.batch.num_requests) return;
  const int64_t head = column / p.head_dim, group = head / (p.heads / p.groups);
  const int64_t b_offset = columns + group * p.states;
  const int64_t c_offset = b_offset + int64_t{p.groups} * p.states;
  const int64_t in_page = head * p.states * p.head_dim + column % p.head_dim;
  const float rate = -sycl::exp(p.a_log[head]);
  StateColumn state(p.states, /*stride=*/p.head_dim);
  ForEachStateRun(p.batch, request, [&](const StateRun& run) {
    const bool starts = run.source == kNullPage;
    state.Load(starts ? nullptr : p.state_pages.Row<const float>(run.source) + in_page);
    for (int32_t t = run.begin; t < run.end; ++t) {
      const Act* row = p.xbc.Row<const Act>(t);
      const float dt = Softplus(Load(p.dt.Row<const Act>(t) + head) + p.dt_bias[head]);
      const float x = Load(row + column), decay = sycl::exp(dt * rate), added = dt * x;
      float sum = 0;
      state.ForEachRow([&](float& h, int32_t n) {
        h = sycl::fma(decay, h, added * Load(row + b_offset + n));
        sum = sycl::fma(h, Load(row + c_offset + n), sum);
      });
      sum = sycl::fma(p.d[head], x, LaneSum(sum));
      if (Lane() == 0) Store(p.y.Row<Act>(t) + column, sum);
    }
    if (run.target == kNullPage) return;
    state.Store(p.state_pages.Row<float>(run.target) + in_page);
  });
}

#endif  // PAGEMILL_SYCL_OPS_STATE_SPACE_SCAN_STATE_SPACE_SCAN_STATE_KERNEL_H_
