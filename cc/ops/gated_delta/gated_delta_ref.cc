// The reference of `gated_delta`: one column of the state after the other.
#include <cmath>
#include <vector>

#include "cc/ops/gated_delta/gated_delta.h"
#include "cc/ops/states/state_pages.h"

namespace pagemill::ops {
namespace {

// 1 / |x|.
double InverseNorm(const float* x, int64_t size) {
  double squares = 0;
  for (int64_t i = 0; i < size; ++i) squares += static_cast<double>(x[i]) * x[i];
  return 1 / std::sqrt(squares + static_cast<double>(kDeltaNormEps));
}

// Computes one column of a head's state, [K], over the tokens between two states.
void DeltaColumn(const GatedDeltaArgs& args, const StateRun& run, int64_t head, int64_t column) {
  const size_t keys = static_cast<size_t>(args.keys);
  const auto at = [&](int32_t page, size_t i) {
    const int64_t row = head * args.keys + static_cast<int64_t>(i);
    return args.state.Row<float>(page) + row * args.values + column;
  };
  std::vector<double> state(keys, 0.0);
  for (size_t i = 0; i < keys && run.source != kNullPage; ++i) state[i] = *at(run.source, i);
  const double rate = -std::exp(static_cast<double>(args.a_log.Data<float>()[head]));
  for (int64_t t = run.begin; t < run.end; ++t) {
    const float* row = args.qkv.Row<float>(t);
    const float* q = row + args.QOffset(head);
    const float* k = row + args.KOffset(head);
    const double of_q = InverseNorm(q, args.keys) / std::sqrt(static_cast<double>(args.keys));
    const double of_k = InverseNorm(k, args.keys);
    double predicted = 0;
    for (size_t i = 0; i < keys; ++i) {
      const int64_t at_a = head * args.rates + (args.rates == 1 ? 0 : static_cast<int64_t>(i));
      const double raw = double{args.a.Row<float>(t)[at_a]} + args.dt_bias.Data<float>()[at_a];
      state[i] *= std::exp(rate * (raw > 20 ? raw : std::log1p(std::exp(raw))));
      predicted += state[i] * (k[i] * of_k);
    }
    const double share = args.share_scale / (1 + std::exp(-double{args.b.Row<float>(t)[head]}));
    const double change = share * (row[args.VOffset(head) + column] - predicted);
    double y = 0;
    for (size_t i = 0; i < keys; ++i) {
      state[i] += k[i] * of_k * change;
      y += state[i] * (q[i] * of_q);
    }
    args.y.Row<float>(t)[head * args.values + column] = static_cast<float>(y);
  }
  for (size_t i = 0; i < keys; ++i) *at(run.target, i) = static_cast<float>(state[i]);
}

}  // namespace

void GatedDeltaReference(const OpCall& call, KernelContext&) {
  const GatedDeltaArgs args = ToGatedDeltaArgs(call);
  for (int64_t r = 0; r < args.batch->num_requests; ++r) {
    ForEachStateRun(*args.batch, r, [&](const StateRun& run) {
      for (int64_t head = 0; head < args.heads; ++head) {
        for (int64_t j = 0; j < args.values; ++j) DeltaColumn(args, run, head, j);
      }
    });
  }
}

}  // namespace pagemill::ops
