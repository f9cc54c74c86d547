#include "cc/ops/wkv/wkv.h"

#include <algorithm>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/row_split.h"
#include "cc/ops/states/state_pages.h"
#include "cc/ops/widened/widened.h"
#include "cc/ops/wkv/wkv_run.h"

namespace pagemill::ops {
namespace {

// Channels that a thread computes together.
constexpr int64_t kBlock = 64;
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

int64_t RowFloats(const TensorView& view) {
  return view.row_stride_bytes / static_cast<int64_t>(sizeof(float));
}

// `size` channels from `first` on, of all requests.
template <WkvRunFunction kRun>
void RunChannels(const WkvArgs& args, int64_t first, int64_t size) {
  for (int64_t r = 0; r < args.batch->num_requests; ++r) {
    ForEachStateRun(*args.batch, r, [&](const StateRun& run) {
      kRun({.source = run.source == kNullPage ? nullptr
                                              : args.state.Row<const float>(run.source) + first,
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
  }
}

template <WkvRunFunction kRun>
void Run(const OpCall& call, KernelContext& context) {
  const WkvArgs args = ToWkvArgs(call);
  const int64_t blocks = (args.channels + kBlock - 1) / kBlock;
  const int64_t rows = std::max<int64_t>(args.key.shape[0], 1);
  context.pool->ParallelFor(
      blocks, RowsPerChunk(rows * kBlock * kCost), [&](int64_t begin, int64_t end, int) {
        for (int64_t block = begin; block < end; ++block) {
          const int64_t first = block * kBlock;
          RunChannels<kRun>(args, first, std::min(kBlock, args.channels - first));
        }
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
