#include "cc/ops/causal_conv/causal_conv.h"

#include <algorithm>
#include <string>

#include "cc/ops/causal_conv/conv_row.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/row_split.h"
#include "cc/ops/states/state_pages.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

Status CheckCausalConv(const OpCall& call) {
  OperandCheck check("causal_conv", call, /*inputs=*/4, /*outputs=*/1);
  check.ActInput(0, "x", "T,C*");
  check.Input(1, "w", DType::kF32, "C,K*");
  if (check.ok() && call.inputs[2].rank > 0) check.Input(2, "bias", DType::kF32, "C");
  check.Input(3, "state", DType::kF32, "P,R,C");
  check.ActOutput(0, "y", "T,C*");
  check.Require(check.Dim('K') >= 2 && check.Dim('K') <= kMaxConvTaps,
                "w must have 2 to " + std::to_string(kMaxConvTaps) + " taps, got " +
                    std::to_string(check.Dim('K')));
  check.Require(check.Dim('R') == check.Dim('K') - 1,
                "a state must have " + std::to_string(check.Dim('K') - 1) + " rows, got " +
                    std::to_string(check.Dim('R')));
  const int64_t kind = call.attributes->GetInt("kind", 0);
  check.Require(kind == static_cast<int64_t>(ActivationKind::kSilu) ||
                    kind == static_cast<int64_t>(ActivationKind::kIdentity),
                "attribute kind must be SiLU or the identity, got " + std::to_string(kind));
  return check.Result();
}

// Channels that one thread computes together: their taps and the rows that tokens share stay in the
// first-level cache.
constexpr int64_t kBlock = 128;
constexpr float kZeros[kBlock] = {};

// `size` channels of one request from `first` on.
class ChannelBlock {
 public:
  ChannelBlock(const CausalConvArgs& args, int64_t first, int64_t size)
      : args_(args), first_(first), size_(size) {
    for (int64_t c = 0; c < size; ++c) {
      const float* w = args.w.Row<const float>(first + c);
      for (int64_t j = 0; j < args.taps; ++j) w_[j * kBlock + c] = w[j];
    }
  }

  template <ConvRowFunction kRow>
  void Advance(const StateRun& run) const {
    const int64_t history = args_.taps - 1;
    const float* x[kMaxConvTaps];
    for (int64_t row = run.begin; row < run.end; ++row) {
      for (int64_t j = 0; j < args_.taps; ++j) x[j] = RowAt(run, row - history + j);
      kRow({.x = x,
            .w = w_,
            .bias = args_.bias.rank > 0 ? args_.bias.Data<const float>() + first_ : kZeros,
            .y = args_.y.Row<float>(row) + first_,
            .taps = args_.taps,
            .w_stride = kBlock,
            .size = size_,
            .kind = args_.kind});
    }
    // Ascending: the rows of a state move towards the oldest, and the target may be the source.
    for (int64_t k = 0; k < history; ++k) {
      std::copy_n(RowAt(run, run.end - history + k), size_, StateRow(run.target, k));
    }
  }

 private:
  float* StateRow(int32_t page, int64_t k) const {
    return args_.state.Row<float>(page) + k * args_.channels + first_;
  }
  // A row of the step, or one that precedes the run.
  const float* RowAt(const StateRun& run, int64_t row) const {
    if (row >= run.begin) return args_.x.Row<const float>(row) + first_;
    if (run.source == kNullPage) return kZeros;
    return StateRow(run.source, args_.taps - 1 - (run.begin - row));
  }

  const CausalConvArgs& args_;
  const int64_t first_;
  const int64_t size_;
  float w_[kMaxConvTaps * kBlock];  // [taps, kBlock]
};

template <ConvRowFunction kRow>
void Run(const OpCall& call, KernelContext& context) {
  const CausalConvArgs args = ToCausalConvArgs(call);
  const int64_t blocks = (args.channels + kBlock - 1) / kBlock;
  const int64_t items = args.batch->num_requests * blocks;
  context.pool->ParallelFor(
      items, RowsPerChunk(kBlock * args.taps), [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t first = i % blocks * kBlock;
          const ChannelBlock block(args, first, std::min(kBlock, args.channels - first));
          ForEachStateRun(*args.batch, i / blocks,
                          [&](const StateRun& run) { block.Advance<kRow>(run); });
        }
      });
}

constexpr F32Kernel kReference{.act_inputs = 0b1, .run = CausalConvReference};

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"causal_conv", "avx512", 30, OnAvx512, Run<ConvRowAvx512>},
    {"causal_conv", "avx2", 20, OnAvx2, Run<ConvRowAvx2>},
#endif
    {"causal_conv", "portable", 10, OnEveryCpu, Run<ConvRowPortable>},
    WidenedReference<&kReference>("causal_conv"),
};

constexpr OpDefinition kDefinition{"causal_conv", CheckCausalConv, kKernels};

}  // namespace

CausalConvArgs ToCausalConvArgs(const OpCall& call) {
  return {.x = call.inputs[0],
          .w = call.inputs[1],
          .bias = call.inputs[2],
          .state = call.inputs[3],
          .y = call.outputs[0],
          .batch = call.batch,
          .channels = call.inputs[3].shape[2],
          .taps = call.inputs[3].shape[1] + 1,
          .kind = static_cast<ActivationKind>(call.attributes->GetInt("kind", 0))};
}

const OpDefinition& CausalConvOp() { return kDefinition; }

}  // namespace pagemill::ops
