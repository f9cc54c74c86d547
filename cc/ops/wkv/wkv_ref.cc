// The reference of `wkv`: one channel after the other.
#include <algorithm>
#include <cmath>

#include "cc/ops/states/state_pages.h"
#include "cc/ops/wkv/wkv.h"

namespace pagemill::ops {
namespace {

// Numerator and denominator of a weighted mean, both divided by e^exponent.
struct Sums {
  double numerator, denominator, exponent;
};

Sums Add(const Sums& sums, double value, double exponent) {
  const double largest = std::max(sums.exponent, exponent);
  const double before = std::exp(sums.exponent - largest), now = std::exp(exponent - largest);
  return {before * sums.numerator + now * value, before * sums.denominator + now, largest};
}

void RunChannel(const WkvArgs& args, const StateRun& run, int64_t channel) {
  const double rate = std::exp(double{args.decay.Data<float>()[channel]});
  const double first = args.first.Data<float>()[channel];
  const int64_t stride = args.channels;
  int64_t t = run.begin;
  Sums sums;
  if (run.source == kNullPage) {
    sums = {args.value.Row<float>(t)[channel], 1, args.key.Row<float>(t)[channel]};
    args.y.Row<float>(t++)[channel] = static_cast<float>(sums.numerator);
  } else {
    const float* source = args.state.Row<float>(run.source) + channel;
    sums = {source[0], source[stride], source[2 * stride]};
  }
  for (; t < run.end; ++t) {
    const double key = args.key.Row<float>(t)[channel], value = args.value.Row<float>(t)[channel];
    const Sums all = Add(sums, value, first + key);
    args.y.Row<float>(t)[channel] = static_cast<float>(all.numerator / all.denominator);
    sums.exponent -= rate;
    sums = Add(sums, value, key);
  }
  float* target = args.state.Row<float>(run.target) + channel;
  target[0] = static_cast<float>(sums.numerator);
  target[stride] = static_cast<float>(sums.denominator);
  target[2 * stride] = static_cast<float>(sums.exponent);
}

}  // namespace

void WkvReference(const OpCall& call, KernelContext&) {
  const WkvArgs args = ToWkvArgs(call);
  for (int64_t r = 0; r < args.batch->num_requests; ++r) {
    ForEachStateRun(*args.batch, r, [&](const StateRun& run) {
      for (int64_t i = 0; i < args.channels; ++i) RunChannel(args, run, i);
    });
  }
}

}  // namespace pagemill::ops
