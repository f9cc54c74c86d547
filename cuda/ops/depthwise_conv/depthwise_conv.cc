#include "cc/ops/depthwise_conv/depthwise_conv.h"

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

constexpr int64_t kThreads = 128;
constexpr int64_t kResults = 8;  // of a block, which finds weights in its L1 cache

struct Sizes {
  int64_t tokens, results, positions, channels, taps;
  bool is_indexed;
};

// A thread for a channel of a block's results. `bias` may be null; `listed` is that of
// DepthwiseConvArgs.
template <typename T>
PAGEMILL_KERNEL ConvolveResults(Rows<const T> x, const float* w, const float* bias, Rows<T> y,
                                const int32_t* listed, Sizes sizes) {
  LetNextBegin();
  AwaitInputs();
  const int64_t channel = BlockIndex().y * kThreads + ThreadIndex().x;
  const int64_t first = BlockIndex().x * kResults, all = sizes.tokens * sizes.results;
  if (channel >= sizes.channels) return;
  const int64_t end = first + kResults < all ? first + kResults : all;
  for (int64_t i = first; i < end; ++i) {
    const int64_t t = i / sizes.results, j = i % sizes.results;
    const int32_t* const from = listed + (sizes.is_indexed ? j : t) * sizes.taps;
    float sum = bias == nullptr ? 0 : bias[channel];
    for (int64_t k = 0; k < sizes.taps; ++k) {
      const int32_t row = from[k];
      if (row < 0 || (sizes.is_indexed && row >= sizes.positions)) continue;
      const T* const read = sizes.is_indexed ? x[t] + row * sizes.channels : x[row];
      sum += w[channel * sizes.taps + k] * ToFloat(read[channel]);
    }
    y[t][j * sizes.channels + channel] = FromFloat<T>(sum);
  }
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::DepthwiseConvArgs args = ops::ToDepthwiseConvArgs(call, context.plan);
  const float* const bias = args.bias.rank > 0 ? args.bias.Data<const float>() : nullptr;
  const LaunchShape shape = {
      .blocks = {DivideUp(args.tokens * args.results, kResults), DivideUp(args.channels, kThreads)},
      .threads = {kThreads},
      .early = true};
  WithActType(args.x.dtype, [&]<typename T>(T) {
    Launch(*context.stream, shape, ConvolveResults<T>, RowsOf<const T>(args.x),
           args.w.Data<const float>(), bias, RowsOf<T>(args.y), args.listed,
           Sizes{args.tokens, args.results, args.positions, args.channels, args.taps,
                 args.is_indexed});
  });
}

constexpr ops::Kernel kKernels[] = {{.op = "depthwise_conv",
                                     .name = "gpu",
                                     .priority = 10,
                                     .supports = OnEveryGpu,
                                     .run = Run,
                                     .plan = &ops::kDepthwiseRowsPlan}};

}  // namespace

std::span<const ops::Kernel> DepthwiseConvKernels() { return kKernels; }

}  // namespace pagemill::gpu
