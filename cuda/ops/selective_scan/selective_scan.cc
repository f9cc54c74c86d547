#include "cc/ops/selective_scan/selective_scan.h"

#include "cuda/gpu_batch.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_math.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/states/state_runs.h"

namespace pagemill::gpu {
namespace {

constexpr int kThreads = 64;
constexpr int kStates = 16;  // of a channel, in registers of a lane
constexpr int kTokens = 4;   // whose x and dt are loaded before the first is used

template <typename T>
struct Operands {
  const T* data;  // x
  int64_t stride;
  Rows<const T> dt, b, c;
  const float* a_log;
  const float* d;
  const float* dt_bias;
  Rows<float> states;
  Rows<T> y;
  int channels, num_states;
};

// `lanes` of a warp share a channel, and neighbouring lanes have neighbouring channels.
template <typename T>
PAGEMILL_KERNEL ScanChannels(Operands<T> args, int lanes, StepTokens batch) {
  const Rows<const T> x = {args.data, args.stride};
  const int of_warp = WarpLanes() / lanes;
  const int channel_of_block = Warp() * of_warp + Lane() % of_warp;
  const int in_grid = static_cast<int>(BlockIndex().x) * (kThreads / lanes) + channel_of_block;
  const bool exists = in_grid < args.channels;
  const int channel = exists ? in_grid : args.channels - 1;
  const int first_state = Lane() / of_warp * kStates;
  const auto has_state = [&](int i) { return first_state + i < args.num_states; };
  const auto state_at = [&](int32_t page, int i) {
    return args.states[page] + int64_t{first_state + i} * args.channels + channel;
  };
  float rate[kStates], h[kStates];
  PAGEMILL_UNROLL
  for (int i = 0; i < kStates; ++i) {
    const int64_t at = int64_t{channel} * args.num_states + first_state + i;
    rate[i] = has_state(i) ? -Exp(args.a_log[at]) : 0;
  }
  ForEachStateRun(batch, BlockIndex().y, [&](const ops::StateRun& run) {
    PAGEMILL_UNROLL
    for (int i = 0; i < kStates; ++i) {
      h[i] = run.source != ops::kNullPage && has_state(i) ? *state_at(run.source, i) : 0;
    }
    for (int32_t first = run.begin; first < run.end; first += kTokens) {
      float dt[kTokens], value[kTokens];
      PAGEMILL_UNROLL
      for (int k = 0; k < kTokens; ++k) {
        const int32_t t = first + k < run.end ? first + k : run.end - 1;
        dt[k] = Softplus(ToFloat(args.dt[t][channel]) + args.dt_bias[channel]);
        value[k] = ToFloat(x[t][channel]);
      }
      PAGEMILL_UNROLL
      for (int k = 0; k < kTokens; ++k) {
        const int32_t t = first + k;
        if (t >= run.end) break;
        float y = 0;
        PAGEMILL_UNROLL
        for (int i = 0; i < kStates; ++i) {
          if (!has_state(i)) break;
          h[i] = Exp(dt[k] * rate[i]) * h[i] +
                 dt[k] * value[k] * ToFloat(args.b[t][first_state + i]);
          y += h[i] * ToFloat(args.c[t][first_state + i]);
        }
        for (int bits = of_warp; bits < WarpLanes(); bits *= 2) {
          y += ShuffleXor(AllLanes(), y, bits);
        }
        if (!exists || first_state > 0) continue;
        args.y[t][channel] = FromFloat<T>(y + args.d[channel] * value[k]);
      }
    }
    if (run.target == ops::kNullPage || !exists) return;
    PAGEMILL_UNROLL
    for (int i = 0; i < kStates; ++i) {
      if (has_state(i)) *state_at(run.target, i) = h[i];
    }
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::SelectiveScanArgs args = ops::ToSelectiveScanArgs(call);
  int lanes = 1;
  while (lanes * kStates < args.states) lanes *= 2;
  const LaunchShape shape = {.blocks = {DivideUp(args.channels * lanes, kThreads),
                                        static_cast<uint32_t>(args.batch->num_requests)},
                             .threads = {kThreads}};
  WithActType(args.x.dtype, [&]<typename T>(T) {
    const Rows<const T> x = RowsOf<const T>(args.x);
    const Operands<T> operands = {.data = x.data,
                                  .stride = x.stride,
                                  .dt = RowsOf<const T>(args.dt),
                                  .b = RowsOf<const T>(args.b),
                                  .c = RowsOf<const T>(args.c),
                                  .a_log = args.a_log.Data<const float>(),
                                  .d = args.d.Data<const float>(),
                                  .dt_bias = args.dt_bias.Data<const float>(),
                                  .states = RowsOf<float>(args.state),
                                  .y = RowsOf<T>(args.y),
                                  .channels = static_cast<int>(args.channels),
                                  .num_states = static_cast<int>(args.states)};
    Launch(*context.stream, shape, ScanChannels<T>, operands, lanes, StepTokensOf(*args.batch));
  });
}

constexpr ops::Kernel kKernels[] = {{"selective_scan", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> SelectiveScanKernels() { return kKernels; }

}  // namespace pagemill::gpu
