// The reference of `causal_conv`, channel by channel.
#include <cmath>
#include <vector>

#include "cc/ops/causal_conv/causal_conv.h"
#include "cc/ops/states/state_pages.h"

namespace pagemill::ops {
namespace {

void ConvolveChannel(const CausalConvArgs& args, const StateRun& run, int64_t c) {
  const size_t history = static_cast<size_t>(args.taps - 1);
  std::vector<float> x(history, 0.0f);
  for (size_t k = 0; k < history && run.source != kNullPage; ++k) {
    x[k] = args.state.Row<float>(run.source)[static_cast<int64_t>(k) * args.channels + c];
  }
  for (int64_t row = run.begin; row < run.end; ++row) x.push_back(args.x.Row<float>(row)[c]);
  const float* w = args.w.Row<float>(c);
  for (int64_t row = run.begin; row < run.end; ++row) {
    double sum = args.bias.rank > 0 ? args.bias.Data<float>()[c] : 0;
    for (int64_t j = 0; j < args.taps; ++j) {
      sum += static_cast<double>(w[j]) * x[static_cast<size_t>(row - run.begin + j)];
    }
    if (args.kind == ActivationKind::kSilu) sum /= 1 + std::exp(-sum);
    args.y.Row<float>(row)[c] = static_cast<float>(sum);
  }
  for (size_t k = 0; k < history; ++k) {
    args.state.Row<float>(run.target)[static_cast<int64_t>(k) * args.channels + c] =
        x[x.size() - history + k];
  }
}

}  // namespace

void CausalConvReference(const OpCall& call, KernelContext&) {
  const CausalConvArgs args = ToCausalConvArgs(call);
  for (int64_t r = 0; r < args.batch->num_requests; ++r) {
    ForEachStateRun(*args.batch, r, [&](const StateRun& run) {
      for (int64_t c = 0; c < args.channels; ++c) ConvolveChannel(args, run, c);
    });
  }
}

}  // namespace pagemill::ops
