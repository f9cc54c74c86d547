#include "cc/ops/gated_recurrence/gated_recurrence.h"

#include "cc/ops/gated_recurrence/gated_run.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/states/channel_blocks.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

// Multiply-adds of a token and channel, most of them of exponentials.
constexpr int64_t kCost = 40;

Status CheckGatedRecurrence(const OpCall& call) {
  OperandCheck check("gated_recurrence", call, /*inputs=*/4, /*outputs=*/1);
  check.Input(3, "state", DType::kF32, "P,C");
  check.ActInput(0, "x", "T,C*");
  check.ActInput(1, "gate", "T,C*");
  check.Input(2, "rate", DType::kF32, "C");
  check.ActOutput(0, "y", "T,C*");
  return check.Result();
}

template <GatedRunFunction kRun>
void Run(const OpCall& call, KernelContext& context) {
  const GatedRecurrenceArgs args = ToGatedRecurrenceArgs(call);
  const ChannelWork work = {.channels = args.channels, .rows = args.x.shape[0], .cost = kCost};
  ForEachChannelBlock(work, *context.pool, [&](int64_t first, int64_t size) {
    ForEachStateRun(*args.batch, [&](int64_t, const StateRun& run) {
      const float* const source = SourceOf(args.state, run);
      kRun({.source = source == nullptr ? nullptr : source + first,
            .target = args.state.Row<float>(run.target) + first,
            .x = args.x.Row<const float>(run.begin) + first,
            .gate = args.gate.Row<const float>(run.begin) + first,
            .rate = args.rate.Data<const float>() + first,
            .y = args.y.Row<float>(run.begin) + first,
            .tokens = run.end - run.begin,
            .size = size,
            .x_stride = RowFloats(args.x),
            .gate_stride = RowFloats(args.gate),
            .y_stride = RowFloats(args.y)});
    });
  });
}

constexpr F32Kernel kReference{.act_inputs = 0b11, .run = GatedRecurrenceReference};

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"gated_recurrence", "avx512", 30, OnAvx512, Run<GatedRunAvx512>},
    {"gated_recurrence", "avx2", 20, OnAvx2, Run<GatedRunAvx2>},
#endif
    {"gated_recurrence", "portable", 10, OnEveryCpu, Run<GatedRunPortable>},
    WidenedReference<&kReference>("gated_recurrence"),
};

constexpr OpDefinition kDefinition{"gated_recurrence", CheckGatedRecurrence, kKernels};

}  // namespace

GatedRecurrenceArgs ToGatedRecurrenceArgs(const OpCall& call) {
  return {.x = call.inputs[0],
          .gate = call.inputs[1],
          .rate = call.inputs[2],
          .state = call.inputs[3],
          .y = call.outputs[0],
          .batch = call.batch,
          .channels = call.inputs[3].shape[1]};
}

const OpDefinition& GatedRecurrenceOp() { return kDefinition; }

}  // namespace pagemill::ops
