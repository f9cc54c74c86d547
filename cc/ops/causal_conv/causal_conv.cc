#include "cc/ops/causal_conv/causal_conv.h"

#include <algorithm>
#include <string>

#include "cc/ops/causal_conv/conv_block.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
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

using Block = ConvBlock<kMaxConvTaps>;

// The rows of a state for the channels of a block, and the rows of the step.
class Rows {
 public:
  Rows(const CausalConvArgs& args, const StateRun& run, int64_t first)
      : args_(args), run_(run), first_(first) {}

  // A row of the step, or one that precedes the run.
  const float* At(int64_t row) const {
    if (row >= run_.begin) return args_.x.Row<const float>(row) + first_;
    if (run_.source == kNullPage) return kConvZeros;
    return State(run_.source, args_.taps - 1 - (run_.begin - row));
  }
  float* State(int32_t page, int64_t k) const {
    return args_.state.Row<float>(page) + k * args_.channels + first_;
  }

 private:
  const CausalConvArgs& args_;
  const StateRun& run_;
  const int64_t first_;
};

template <ConvRowFunction kRow>
void Advance(const CausalConvArgs& args, const StateRun& run, const Block& block) {
  const int64_t history = args.taps - 1;
  const Rows rows(args, run, block.first);
  for (int64_t row = run.begin; row < run.end; ++row) {
    block.Convolve<kRow>([&](int64_t k) { return rows.At(row - history + k); },
                         args.y.Row<float>(row) + block.first, args.kind);
  }
  // Ascending: the rows of a state move towards the oldest, and the target may be the source.
  for (int64_t k = 0; k < history; ++k) {
    std::copy_n(rows.At(run.end - history + k), block.size, rows.State(run.target, k));
  }
}

template <ConvRowFunction kRow>
void Run(const OpCall& call, KernelContext& context) {
  const CausalConvArgs args = ToCausalConvArgs(call);
  ForEachConvBlock<kMaxConvTaps>(args, args.batch->num_requests, /*rows=*/1, context,
                                 [&](int64_t request, const Block& block) {
                                   ForEachStateRun(*args.batch, request, [&](const StateRun& run) {
                                     Advance<kRow>(args, run, block);
                                   });
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
