#include "cc/ops/causal_conv/causal_conv.h"

#include "cuda/gpu_batch.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/states/state_runs.h"
#include "cuda/ops/states/state_steps.h"

namespace pagemill::gpu {
namespace {

constexpr int64_t kThreads = 128;
constexpr int32_t kRowsOfPrompts = 8;  // of a block

struct Sizes {
  int64_t channels;
  int32_t taps;
};

// The element of a channel in a row of the step, or in one before row `begin`, from the state in
// page `source`.
template <typename T>
PAGEMILL_DEVICE float ElementAt(Rows<const T> x, Rows<float> states, const Sizes& sizes,
                                int32_t source, int32_t begin, int32_t row, int64_t channel) {
  if (row >= begin) return ToFloat(x[row][channel]);
  if (source == ops::kNullPage) return 0;
  return states[source][(sizes.taps - 1 - (begin - row)) * sizes.channels + channel];
}

// A thread for one channel of `rows` rows, whose weights and elements it finds in its L1 cache from
// the second row on. `bias` may be null.
template <typename T>
PAGEMILL_KERNEL ConvolveRows(Rows<const T> x, const float* w, const float* bias,
                             Rows<float> states, Rows<T> y, Sizes sizes, int32_t rows, bool silu,
                             StepTokens batch) {
  LetNextBegin();
  AwaitInputs();
  const int64_t channel = BlockIndex().x * kThreads + ThreadIndex().x;
  const int32_t first = static_cast<int32_t>(BlockIndex().y) * rows;
  const int32_t tokens = batch.query_start[batch.num_requests];
  if (channel >= sizes.channels || first >= tokens) return;
  const int32_t behind = first + rows < tokens ? first + rows : tokens;
  const float of_bias = bias == nullptr ? 0 : bias[channel];
  int32_t request = RequestOf(batch.query_start, batch.num_requests, first), row = first;
  while (true) {
    const int32_t begin = batch.query_start[request], end = batch.query_start[request + 1];
    const int32_t position = batch.seq_lens[request] - (end - begin);
    const int32_t* const table = batch.data + request * batch.table_stride;
    const int32_t source = position > 0 ? PageAfter(batch, table, position) : ops::kNullPage;
    for (; row < end && row < behind; ++row) {
      float sum = of_bias;
      for (int32_t j = 0; j < sizes.taps; ++j) {
        const int32_t from = row - (sizes.taps - 1) + j;
        sum += w[channel * sizes.taps + j] *
               ElementAt(x, states, sizes, source, begin, from, channel);
      }
      y[row][channel] = FromFloat<T>(silu ? sum / (1 + Exp(-sum)) : sum);
    }
    if (row == behind) return;
    do {
      ++request;
    } while (batch.query_start[request + 1] <= row);
  }
}

// A thread for a channel of a request, of which the step has one token: its state is read once, for
// the result and for the next state.
template <typename T>
PAGEMILL_KERNEL ConvolveStep(Rows<const T> x, const float* w, const float* bias, Rows<float> states,
                             Rows<T> y, Sizes sizes, bool silu, StepTokens batch) {
  LetNextBegin();
  const int64_t channel = BlockIndex().x * kThreads + ThreadIndex().x;
  const bool exists = channel < sizes.channels;
  const int32_t kept = sizes.taps - 1;  // elements of a state
  float weights[ops::kMaxConvTaps] = {};
  PAGEMILL_UNROLL
  for (int32_t j = 0; j < ops::kMaxConvTaps; ++j) {
    if (exists && j <= kept) weights[j] = w[channel * sizes.taps + j];
  }
  float sum = exists && bias != nullptr ? bias[channel] : 0;
  AwaitInputs();
  if (!exists) return;
  StateRuns runs(batch, BlockIndex().y);
  if (!runs.Next(1)) return;
  const ops::StateRun run = runs.run();
  const float newest = ToFloat(x[run.begin][channel]);
  float elements[ops::kMaxConvTaps];  // those of the state, and the newest
  PAGEMILL_UNROLL
  for (int32_t j = 0; j < ops::kMaxConvTaps; ++j) {
    elements[j] = j >= kept || run.source == ops::kNullPage
                      ? 0
                      : states[run.source][j * sizes.channels + channel];
    if (j == kept) elements[j] = newest;
  }
  PAGEMILL_UNROLL
  for (int32_t j = 0; j < ops::kMaxConvTaps; ++j) {
    if (j <= kept) sum += weights[j] * elements[j];
    if (j == 0 || j > kept || run.target == ops::kNullPage) continue;
    states[run.target][(j - 1) * sizes.channels + channel] = elements[j];
  }
  y[run.begin][channel] = FromFloat<T>(silu ? sum / (1 + Exp(-sum)) : sum);
}

// A thread for each channel of a request. Comes after all rows have read the states.
template <typename T>
PAGEMILL_KERNEL StoreStates(Rows<const T> x, Rows<float> states, Sizes sizes, StepTokens batch) {
  LetNextBegin();
  AwaitInputs();
  const int64_t channel = BlockIndex().x * kThreads + ThreadIndex().x;
  if (channel >= sizes.channels) return;
  ForEachStateRun(batch, BlockIndex().y, [&](const ops::StateRun& run) {
    if (run.target == ops::kNullPage) return;
    // Ascending: rows move towards the oldest, and the target may be the source.
    for (int32_t k = 0; k < sizes.taps - 1; ++k) {
      states[run.target][k * sizes.channels + channel] =
          ElementAt(x, states, sizes, run.source, run.begin, run.end - (sizes.taps - 1) + k,
                    channel);
    }
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::CausalConvArgs args = ops::ToCausalConvArgs(call);
  const Sizes sizes = {args.channels, static_cast<int32_t>(args.taps)};
  const StepTokens batch = StepTokensOf(*args.batch);
  const float* const bias = args.bias.rank > 0 ? args.bias.Data<const float>() : nullptr;
  const int64_t tokens = args.x.shape[0], requests = args.batch->num_requests;
  // Requests that decode are computed beside each other.
  const int32_t rows = tokens < kRowsOfPrompts * requests ? 1 : kRowsOfPrompts;
  const uint32_t blocks = DivideUp(args.channels, kThreads);
  const auto shape = [&](uint32_t count) {
    return LaunchShape{.blocks = {blocks, count}, .threads = {kThreads}, .early = true};
  };
  const float* const w = args.w.Data<const float>();
  const bool silu = args.kind == ops::ActivationKind::kSilu;
  WithActType(args.x.dtype, [&]<typename T>(T) {
    const Rows<const T> x = RowsOf<const T>(args.x);
    const Rows<float> states = RowsOf<float>(args.state);
    const Rows<T> y = RowsOf<T>(args.y);
    if (HasSingleTokens(*args.batch)) {
      return Launch(*context.stream, shape(static_cast<uint32_t>(requests)), ConvolveStep<T>, x, w,
                    bias, states, y, sizes, silu, batch);
    }
    Launch(*context.stream, shape(DivideUp(tokens, rows)), ConvolveRows<T>, x, w, bias, states, y,
           sizes, rows, silu, batch);
    Launch(*context.stream, shape(static_cast<uint32_t>(requests)), StoreStates<T>, x, states,
           sizes, batch);
  });
}

constexpr ops::Kernel kKernels[] = {{"causal_conv", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> CausalConvKernels() { return kKernels; }

}  // namespace pagemill::gpu
