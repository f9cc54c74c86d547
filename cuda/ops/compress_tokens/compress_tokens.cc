#include "cc/ops/compress_tokens/compress_tokens.h"

#include "cuda/gpu_batch.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/states/state_runs.h"

namespace pagemill::gpu {
namespace {

constexpr int64_t kThreads = 64;  // a channel of a request each
constexpr int32_t kTokens = 4;    // whose operands are loaded before the first is used

// The sums of a part: the largest score, and relative to it those of weights and of values. The
// weights of no tokens are 0.
struct Sums {
  float max = 0, weights = 0, values = 0;

  PAGEMILL_DEVICE void Add(float score, float x) {
    const bool starts = weights == 0, grows = starts || max < score;
    const float smaller = starts ? 0 : Exp(-fabsf(max - score));  // the other weight is 1
    const float old = grows ? smaller : 1, added = grows ? 1 : smaller;
    max = grows ? score : max;
    weights = weights * old + added;
    values = values * old + added * x;
  }
  PAGEMILL_DEVICE void Load(const float* state, int64_t channels) {
    max = state[0];
    weights = state[channels];
    values = state[2 * channels];
  }
  PAGEMILL_DEVICE void Store(float* state, int64_t channels) const {
    state[0] = max;
    state[channels] = weights;
    state[2 * channels] = values;
  }
};

template <typename T, int kParts>
PAGEMILL_KERNEL RunChannels(Rows<const T> x, Rows<const T> gates, Rows<const float> biases,
                            Rows<float> states, Rows<T> y, int32_t window, int64_t channels,
                            StepTokens batch) {
  constexpr int kLast = kParts - 1;  // the part whose sums give y
  const int64_t channel = BlockIndex().x * kThreads + ThreadIndex().x;
  if (channel >= channels) return;
  const int64_t request = BlockIndex().y;
  const int32_t before_step = batch.seq_lens[request] - batch.query_start[request + 1];
  ForEachStateRun(batch, request, [&](const ops::StateRun& run) {
    Sums sums[kParts];
    for (int part = 0; part < kParts; ++part) {
      if (run.source == ops::kNullPage) continue;
      sums[part].Load(states[run.source] + part * 3 * channels + channel, channels);
    }
    int32_t in_window = (before_step + run.begin) % window;
    for (int32_t begin = run.begin; begin < run.end; begin += kTokens) {
      float value[kTokens][kParts], score[kTokens][kParts];
      for (int32_t i = 0; i < kTokens; ++i) {
        const int32_t t = begin + i < run.end ? begin + i : run.end - 1;
        const float* const bias = biases[(in_window + t - begin) % window];
        for (int part = 0; part < kParts; ++part) {
          const int64_t at = part * channels + channel;
          value[i][part] = ToFloat(x[t][at]);
          score[i][part] = ToFloat(gates[t][at]) + bias[at];
        }
      }
      for (int32_t i = 0; i < kTokens; ++i) {
        if (begin + i >= run.end) break;
        if (in_window == 0) {
          sums[kLast] = sums[0];
          sums[0] = Sums();
        }
        for (int part = 0; part < kParts; ++part) sums[part].Add(score[i][part], value[i][part]);
        const bool closes = in_window == window - 1;
        const float mean = closes ? sums[kLast].values / sums[kLast].weights : 0;
        y[begin + i][channel] = FromFloat<T>(mean);
        in_window = closes ? 0 : in_window + 1;
      }
    }
    for (int part = 0; part < kParts; ++part) {
      if (run.target == ops::kNullPage) continue;
      sums[part].Store(states[run.target] + part * 3 * channels + channel, channels);
    }
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::CompressTokensArgs args = ops::ToCompressTokensArgs(call);
  const LaunchShape shape = {.blocks = {DivideUp(args.channels, kThreads),
                                        static_cast<uint32_t>(args.batch->num_requests)},
                             .threads = {kThreads}};
  WithActType(args.x.dtype, [&]<typename T>(T) {
    Launch(*context.stream, shape, args.parts == 1 ? RunChannels<T, 1> : RunChannels<T, 2>,
           RowsOf<const T>(args.x), RowsOf<const T>(args.gate), RowsOf<const float>(args.bias),
           RowsOf<float>(args.state), RowsOf<T>(args.y), static_cast<int32_t>(args.window),
           args.channels, StepTokensOf(*args.batch));
  });
}

constexpr ops::Kernel kKernels[] = {{"compress_tokens", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> CompressTokensKernels() { return kKernels; }

}  // namespace pagemill::gpu
