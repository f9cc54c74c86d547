#include "cc/ops/gated_recurrence/gated_recurrence.h"

#include <algorithm>

#include "cc/ops/gated_recurrence/gated_run.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/row_split.h"
#include "cc/ops/states/state_pages.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

// Channels that a thread computes together.
constexpr int64_t kBlock = 64;
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

int64_t RowFloats(const TensorView& view) {
  return view.row_stride_bytes / static_cast<int64_t>(sizeof(float));
}

// `size` channels from `first` on, of all requests.
template <GatedRunFunction kRun>
void RunChannels(const GatedRecurrenceArgs& args, int64_t first, int64_t size) {
  for (int64_t r = 0; r < args.batch->num_requests; ++r) {
    ForEachStateRun(*args.batch, r, [&](const StateRun& run) {
      kRun({.source = run.source == kNullPage ? nullptr
                                              : args.state.Row<const float>(run.source) + first,
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
  }
}

template <GatedRunFunction kRun>
void Run(const OpCall& call, KernelContext& context) {
  const GatedRecurrenceArgs args = ToGatedRecurrenceArgs(call);
  const int64_t blocks = (args.channels + kBlock - 1) / kBlock;
  const int64_t rows = std::max<int64_t>(args.x.shape[0], 1);
  context.pool->ParallelFor(
      blocks, RowsPerChunk(rows * kBlock * kCost), [&](int64_t begin, int64_t end, int) {
        for (int64_t block = begin; block < end; ++block) {
          const int64_t first = block * kBlock;
          RunChannels<kRun>(args, first, std::min(kBlock, args.channels - first));
        }
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
