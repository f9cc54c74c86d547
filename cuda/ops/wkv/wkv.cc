#include "cc/ops/wkv/wkv.h"

#include "cuda/gpu_batch.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/states/state_runs.h"

namespace pagemill::gpu {
namespace {

constexpr int64_t kThreads = 64;  // a channel of a request each
constexpr int32_t kTokens = 8;    // whose operands are loaded before the first is used

// Numerator and denominator of a weighted mean, both divided by e^exponent.
struct Sums {
  float numerator, denominator, exponent;
};

// The sums with another value, whose weight is e^exponent. Of both weights relative to the larger
// one, that one is 1, so one exponential is enough.
PAGEMILL_DEVICE Sums Add(const Sums& sums, float value, float exponent) {
  const float smaller = Exp(-fabsf(sums.exponent - exponent));
  const bool grows = sums.exponent < exponent;
  const float before = grows ? smaller : 1, now = grows ? 1 : smaller;
  return {before * sums.numerator + now * value, before * sums.denominator + now,
          grows ? exponent : sums.exponent};
}

template <typename T>
PAGEMILL_KERNEL RunChannels(Rows<const T> keys, Rows<const T> values, const float* decay,
                            const float* first_weight, Rows<float> states, Rows<T> y,
                            int64_t channels, StepTokens batch) {
  const int64_t channel = BlockIndex().x * kThreads + ThreadIndex().x;
  if (channel >= channels) return;
  const float rate = Exp(decay[channel]), first = first_weight[channel];
  ForEachStateRun(batch, BlockIndex().y, [&](const ops::StateRun& run) {
    Sums sums = {0, 0, 0};
    if (run.source != ops::kNullPage) {
      const float* const source = states[run.source] + channel;
      sums = {source[0], source[channels], source[2 * channels]};
    }
    for (int32_t begin = run.begin; begin < run.end; begin += kTokens) {
      float key[kTokens], value[kTokens];
      for (int32_t i = 0; i < kTokens; ++i) {
        const int32_t t = begin + i < run.end ? begin + i : run.end - 1;
        key[i] = ToFloat(keys[t][channel]);
        value[i] = ToFloat(values[t][channel]);
      }
      for (int32_t i = 0; i < kTokens; ++i) {
        const int32_t t = begin + i;
        if (t >= run.end) break;
        if (t == run.begin && run.source == ops::kNullPage) {  // the request's first
          y[t][channel] = FromFloat<T>(value[i]);
          sums = {value[i], 1, key[i]};
          continue;
        }
        const Sums all = Add(sums, value[i], first + key[i]);
        y[t][channel] = FromFloat<T>(all.numerator / all.denominator);
        sums.exponent -= rate;
        sums = Add(sums, value[i], key[i]);
      }
    }
    if (run.target == ops::kNullPage) return;
    float* const target = states[run.target] + channel;
    target[0] = sums.numerator;
    target[channels] = sums.denominator;
    target[2 * channels] = sums.exponent;
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::WkvArgs args = ops::ToWkvArgs(call);
  const LaunchShape shape = {.blocks = {DivideUp(args.channels, kThreads),
                                        static_cast<uint32_t>(args.batch->num_requests)},
                             .threads = {kThreads}};
  WithActType(args.key.dtype, [&]<typename T>(T) {
    Launch(*context.stream, shape, RunChannels<T>, RowsOf<const T>(args.key),
           RowsOf<const T>(args.value), args.decay.Data<const float>(),
           args.first.Data<const float>(), RowsOf<float>(args.state), RowsOf<T>(args.y),
           args.channels, StepTokensOf(*args.batch));
  });
}

constexpr ops::Kernel kKernels[] = {{"wkv", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> WkvKernels() { return kKernels; }

}  // namespace pagemill::gpu
