// The reference of `state_space_scan`: one element of the state after the other.
#include <cmath>
#include <vector>

#include "cc/ops/state_space_scan/state_space_scan.h"
#include "cc/ops/states/state_pages.h"

namespace pagemill::ops {
namespace {

// Computes one column of a head's state, [N], over the tokens between two states.
void ScanColumn(const StateSpaceScanArgs& args, const StateRun& run, int64_t head, int64_t p) {
  const int64_t column = head * args.head_dim + p;
  const auto at = [&](int32_t page, int64_t n) {
    return args.state.Row<float>(page) + (head * args.states + n) * args.head_dim + p;
  };
  std::vector<double> h(static_cast<size_t>(args.states), 0.0);
  for (int64_t n = 0; n < args.states && run.source != kNullPage; ++n) {
    h[static_cast<size_t>(n)] = *at(run.source, n);
  }
  const double rate = -std::exp(static_cast<double>(args.a_log.Data<float>()[head]));
  for (int64_t t = run.begin; t < run.end; ++t) {
    const float* row = args.xbc.Row<float>(t);
    const double raw = double{args.dt.Row<float>(t)[head]} + args.dt_bias.Data<float>()[head];
    const double dt = raw > 20 ? raw : std::log1p(std::exp(raw));
    const double x = row[column];
    double y = args.d.Data<float>()[head] * x;
    for (int64_t n = 0; n < args.states; ++n) {
      double& state = h[static_cast<size_t>(n)];
      state = std::exp(dt * rate) * state + dt * row[args.BOffset(head) + n] * x;
      y += state * row[args.COffset(head) + n];
    }
    args.y.Row<float>(t)[column] = static_cast<float>(y);
  }
  for (int64_t n = 0; n < args.states; ++n) {
    *at(run.target, n) = static_cast<float>(h[static_cast<size_t>(n)]);
  }
}

}  // namespace

void StateSpaceScanReference(const OpCall& call, KernelContext&) {
  const StateSpaceScanArgs args = ToStateSpaceScanArgs(call);
  for (int64_t r = 0; r < args.batch->num_requests; ++r) {
    ForEachStateRun(*args.batch, r, [&](const StateRun& run) {
      for (int64_t head = 0; head < args.heads; ++head) {
        for (int64_t p = 0; p < args.head_dim; ++p) ScanColumn(args, run, head, p);
      }
    });
  }
}

}  // namespace pagemill::ops
