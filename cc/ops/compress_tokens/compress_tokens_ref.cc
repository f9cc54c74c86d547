// The reference of `compress_tokens`: one channel after the other.
#include <algorithm>
#include <cmath>

#include "cc/ops/compress_tokens/compress_tokens.h"
#include "cc/ops/states/state_pages.h"

namespace pagemill::ops {
namespace {

struct Sums {
  double max = 0, weights = 0, values = 0;

  void Add(double z, double x) {
    const double largest = weights == 0 ? z : std::max(max, z);
    const double old = std::exp(max - largest), added = std::exp(z - largest);
    weights = (weights == 0 ? 0 : weights * old) + added;
    values = (values == 0 ? 0 : values * old) + added * x;
    max = largest;
  }
};

float* InState(const CompressTokensArgs& args, int32_t page, int64_t part, int64_t row,
               int64_t channel) {
  return args.state.Row<float>(page) + (part * 3 + row) * args.channels + channel;
}

void RunChannel(const CompressTokensArgs& args, int64_t request, const StateRun& run,
                int64_t channel) {
  Sums sums[2];
  for (int64_t part = 0; part < args.parts && run.source != kNullPage; ++part) {
    sums[part] = {*InState(args, run.source, part, 0, channel),
                  *InState(args, run.source, part, 1, channel),
                  *InState(args, run.source, part, 2, channel)};
  }
  for (int64_t row = run.begin; row < run.end; ++row) {
    const int64_t position = args.PositionOf(request, row), in_window = position % args.window;
    if (in_window == 0) {
      sums[args.last_part()] = args.parts == 2 ? sums[0] : Sums();
      sums[0] = Sums();
    }
    for (int64_t part = 0; part < args.parts; ++part) {
      const int64_t at = part * args.channels + channel;
      const double z = double{args.gate.Row<const float>(row)[at]} +
                       args.bias.Row<const float>(in_window)[at];
      sums[part].Add(z, args.x.Row<const float>(row)[at]);
    }
    const bool closes = in_window == args.window - 1;
    const Sums& last = sums[args.last_part()];
    args.y.Row<float>(row)[channel] =
        closes ? static_cast<float>(last.values / last.weights) : 0.0f;
  }
  for (int64_t part = 0; part < args.parts; ++part) {
    *InState(args, run.target, part, 0, channel) = static_cast<float>(sums[part].max);
    *InState(args, run.target, part, 1, channel) = static_cast<float>(sums[part].weights);
    *InState(args, run.target, part, 2, channel) = static_cast<float>(sums[part].values);
  }
}

}  // namespace

void CompressTokensReference(const OpCall& call, KernelContext&) {
  const CompressTokensArgs args = ToCompressTokensArgs(call);
  for (int64_t r = 0; r < args.batch->num_requests; ++r) {
    ForEachStateRun(*args.batch, r, [&](const StateRun& run) {
      for (int64_t i = 0; i < args.channels; ++i) RunChannel(args, r, run, i);
    });
  }
}

}  // namespace pagemill::ops
