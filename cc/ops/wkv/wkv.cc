#include "cc/ops/wkv/wkv.h"

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/states/channel_blocks.h"
#include "cc/ops/widened/widened.h"
#include "cc/ops/wkv/wkv_run.h"

namespace pagemill::ops {
namespace {

// Multiply-adds of a token and channel, most of them of the two exponentials and the division.
constexpr int64_t kCost = 32;

Status CheckWkv(const OpCall& call) {
  OperandCheck check("wkv", call, /*inputs=*/5, /*outputs=*/1);
  check.Input(4, "state", DType::kF32, "P,S,C");
  check.Require(check.Dim('S') == kWkvStateRows, "a state has 3 rows");
  check.ActInput(0, "key", "T,C*");
  check.ActInput(1, "value", "T,C*");
  check.Input(2, "decay", DType::kF32, "C");
  check.Input(3, "first", DType::kF32, "C");
  check.ActOutput(0, "y", "T,C*");
  return check.Result();
}

template <WkvRunFunction kRun>
void Run(const OpCall& call, KernelContext& context) {
  const WkvArgs args = ToWkvArgs(call);
  const ChannelWork work = {.channels = args.channels, .rows = args.key.shape[0], .cost = kCost};
  ForEachChannelBlock(work, *context.pool, [&](int64_t first, int64_t size) {
    ForEachStateRun(*args.batch, [&](int64_t, const StateRun& run) {
      const float* const source = SourceOf(args.state, run);
      kRun({.source = source == nullptr ? nullptr : source + first,
            .target = args.state.Row<float>(run.target) + first,
            .key = args.key.Row<const float>(run.begin) + first,
            .value = args.value.Row<const float>(run.begin) + first,
            .decay = args.decay.Data<const float>() + first,
            .first = args.first.Data<const float>() + first,
            .y = args.y.Row<float>(run.begin) + first,
            .tokens = run.end - run.begin,
            .size = size,
            .state_stride = args.channels,
            .key_stride = RowFloats(args.key),
            .value_stride = RowFloats(args.value),
            .y_stride = RowFloats(args.y)});
    });
  });
}

constexpr F32Kernel kReference{.act_inputs = 0b11, .run = WkvReference};

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"wkv", "avx512", 30, OnAvx512, Run<WkvRunAvx512>},
    {"wkv", "avx2", 20, OnAvx2, Run<WkvRunAvx2>},
#endif
    {"wkv", "portable", 10, OnEveryCpu, Run<WkvRunPortable>},
    WidenedReference<&kReference>("wkv"),
};

constexpr OpDefinition kDefinition{"wkv", CheckWkv, kKernels};

}  // namespace

WkvArgs ToWkvArgs(const OpCall& call) {
  return {.key = call.inputs[0],
          .value = call.inputs[1],
          .decay = call.inputs[2],
          .first = call.inputs[3],
          .state = call.inputs[4],
          .y = call.outputs[0],
          .batch = call.batch,
          .channels = call.inputs[4].shape[2]};
}

const OpDefinition& WkvOp() { return kDefinition; }

}  // namespace pagemill::ops
