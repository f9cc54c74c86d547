#include "cc/ops/gated_recurrence/gated_recurrence.h"

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

template <typename T>
PAGEMILL_KERNEL RunChannels(Rows<const T> x, Rows<const T> gates, const float* rates,
                            Rows<float> states, Rows<T> y, int64_t channels, StepTokens batch) {
  const int64_t channel = BlockIndex().x * kThreads + ThreadIndex().x;
  if (channel >= channels) return;
  const float rate = -8 * log1pf(Exp(rates[channel]));
  ForEachStateRun(batch, BlockIndex().y, [&](const ops::StateRun& run) {
    const bool starts = run.source == ops::kNullPage;
    float h = starts ? 0 : states[run.source][channel];
    for (int32_t first = run.begin; first < run.end; first += kTokens) {
      float decay[kTokens], added[kTokens];
      for (int32_t i = 0; i < kTokens; ++i) {
        const int32_t t = first + i < run.end ? first + i : run.end - 1;
        const float log_a = rate / (1 + Exp(-ToFloat(gates[t][channel])));
        decay[i] = Exp(log_a);
        added[i] = ToFloat(x[t][channel]);
        if (!starts || t > run.begin) added[i] *= sqrtf(-expm1f(2 * log_a));
      }
      for (int32_t i = 0; i < kTokens; ++i) {
        if (first + i >= run.end) break;
        h = decay[i] * h + added[i];
        y[first + i][channel] = FromFloat<T>(h);
      }
    }
    if (run.target != ops::kNullPage) states[run.target][channel] = h;
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::GatedRecurrenceArgs args = ops::ToGatedRecurrenceArgs(call);
  const LaunchShape shape = {.blocks = {DivideUp(args.channels, kThreads),
                                        static_cast<uint32_t>(args.batch->num_requests)},
                             .threads = {kThreads}};
  WithActType(args.x.dtype, [&]<typename T>(T) {
    Launch(*context.stream, shape, RunChannels<T>, RowsOf<const T>(args.x),
           RowsOf<const T>(args.gate), args.rate.Data<const float>(), RowsOf<float>(args.state),
           RowsOf<T>(args.y), args.channels, StepTokensOf(*args.batch));
  });
}

constexpr ops::Kernel kKernels[] = {{"gated_recurrence", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> GatedRecurrenceKernels() { return kKernels; }

}  // namespace pagemill::gpu
