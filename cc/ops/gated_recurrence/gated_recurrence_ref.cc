// The reference of `gated_recurrence`: one channel after the other.
#include <cmath>

#include "cc/ops/gated_recurrence/gated_recurrence.h"
#include "cc/ops/states/state_pages.h"

namespace pagemill::ops {
namespace {

void RunChannel(const GatedRecurrenceArgs& args, const StateRun& run, int64_t channel) {
  const bool starts = run.source == kNullPage;
  double h = starts ? 0 : args.state.Row<float>(run.source)[channel];
  const double rate = std::log1p(std::exp(double{args.rate.Data<float>()[channel]}));
  for (int64_t t = run.begin; t < run.end; ++t) {
    const double x = args.x.Row<float>(t)[channel];
    const double gate = 1 / (1 + std::exp(-double{args.gate.Row<float>(t)[channel]}));
    const double log_a = kGateFactor * gate * rate;
    h = starts && t == run.begin ? x
                                 : std::exp(log_a) * h + std::sqrt(-std::expm1(2 * log_a)) * x;
    args.y.Row<float>(t)[channel] = static_cast<float>(h);
  }
  args.state.Row<float>(run.target)[channel] = static_cast<float>(h);
}

}  // namespace

void GatedRecurrenceReference(const OpCall& call, KernelContext&) {
  const GatedRecurrenceArgs args = ToGatedRecurrenceArgs(call);
  for (int64_t r = 0; r < args.batch->num_requests; ++r) {
    ForEachStateRun(*args.batch, r, [&](const StateRun& run) {
      for (int64_t i = 0; i < args.channels; ++i) RunChannel(args, run, i);
    });
  }
}

}  // namespace pagemill::ops
