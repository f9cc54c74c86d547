// The reference of `selective_scan`: one channel after the other.
#include <cmath>
#include <vector>

#include "cc/ops/selective_scan/selective_scan.h"
#include "cc/ops/states/state_pages.h"

namespace pagemill::ops {
namespace {

void ScanChannel(const SelectiveScanArgs& args, const StateRun& run, int64_t channel) {
  const size_t states = static_cast<size_t>(args.states);
  const auto at = [&](int32_t page, size_t n) {
    return args.state.Row<float>(page) + static_cast<int64_t>(n) * args.channels + channel;
  };
  std::vector<double> h(states, 0.0);
  for (size_t n = 0; n < states && run.source != kNullPage; ++n) h[n] = *at(run.source, n);
  const float* a_log = args.a_log.Row<float>(channel);
  for (int64_t t = run.begin; t < run.end; ++t) {
    const double x = args.x.Row<float>(t)[channel];
    const double raw =
        double{args.dt.Row<float>(t)[channel]} + args.dt_bias.Data<float>()[channel];
    const double dt = raw > 20 ? raw : std::log1p(std::exp(raw));
    double y = args.d.Data<float>()[channel] * x;
    for (size_t n = 0; n < states; ++n) {
      const double decay = std::exp(-dt * std::exp(static_cast<double>(a_log[n])));
      h[n] = decay * h[n] + dt * x * args.b.Row<float>(t)[n];
      y += h[n] * args.c.Row<float>(t)[n];
    }
    args.y.Row<float>(t)[channel] = static_cast<float>(y);
  }
  for (size_t n = 0; n < states; ++n) *at(run.target, n) = static_cast<float>(h[n]);
}

}  // namespace

void SelectiveScanReference(const OpCall& call, KernelContext&) {
  const SelectiveScanArgs args = ToSelectiveScanArgs(call);
  for (int64_t r = 0; r < args.batch->num_requests; ++r) {
    ForEachStateRun(*args.batch, r, [&](const StateRun& run) {
      for (int64_t i = 0; i < args.channels; ++i) ScanChannel(args, run, i);
    });
  }
}

}  // namespace pagemill::ops
