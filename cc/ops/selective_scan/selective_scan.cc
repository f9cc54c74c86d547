#include "cc/ops/selective_scan/selective_scan.h"

#include <algorithm>
#include <string>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/selective_scan/selective_run.h"
#include "cc/ops/states/channel_blocks.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

Status CheckSelectiveScan(const OpCall& call) {
  OperandCheck check("selective_scan", call, /*inputs=*/8, /*outputs=*/1);
  check.Input(7, "state", DType::kF32, "P,N,C");
  check.ActInput(0, "x", "T,C*");
  check.ActInput(1, "dt", "T,C*");
  check.ActInput(2, "b", "T,N*");
  check.ActInput(3, "c", "T,N*");
  check.Input(4, "a_log", DType::kF32, "C,N");
  check.Input(5, "d", DType::kF32, "C");
  check.Input(6, "dt_bias", DType::kF32, "C");
  check.ActOutput(0, "y", "T,C*");
  check.Require(check.Dim('N') <= kMaxSelectiveStates,
                "a channel must have at most " + std::to_string(kMaxSelectiveStates) +
                    " states, got " + std::to_string(check.Dim('N')));
  return check.Result();
}

// `size` channels from `first` on, of all requests.
template <const SelectiveFunctions& kFunctions>
void ScanChannels(const SelectiveScanArgs& args, int64_t first, int64_t size) {
  float rates[kMaxSelectiveStates * kSelectiveBlock] = {};
  for (int64_t i = 0; i < size; ++i) {
    const float* a_log = args.a_log.Row<const float>(first + i);
    for (int64_t n = 0; n < args.states; ++n) rates[n * kSelectiveBlock + i] = a_log[n];
  }
  kFunctions.make_rates(rates, args.states);
  ForEachStateRun(*args.batch, [&](int64_t, const StateRun& run) {
    const float* const source = SourceOf(args.state, run);
    kFunctions.run(
        {.source = source == nullptr ? nullptr : source + first,
         .target = args.state.Row<float>(run.target) + first,
         .x = args.x.Row<const float>(run.begin) + first,
         .dt = args.dt.Row<const float>(run.begin) + first,
         .b = args.b.Row<const float>(run.begin),
         .c = args.c.Row<const float>(run.begin),
         .rates = rates,
         .d = args.d.Data<const float>() + first,
         .dt_bias = args.dt_bias.Data<const float>() + first,
         .y = args.y.Row<float>(run.begin) + first,
         .tokens = run.end - run.begin,
         .states = args.states,
         .size = size,
         .state_stride = args.channels,
         .x_stride = RowFloats(args.x),
         .dt_stride = RowFloats(args.dt),
         .b_stride = RowFloats(args.b),
         .c_stride = RowFloats(args.c),
         .y_stride = RowFloats(args.y)});
  });
}

template <const SelectiveFunctions& kFunctions>
void Run(const OpCall& call, KernelContext& context) {
  const SelectiveScanArgs args = ToSelectiveScanArgs(call);
  const ChannelWork work = {
      .channels = args.channels, .rows = args.x.shape[0], .cost = args.states};
  static_assert(kSelectiveBlock == kChannelBlock);
  ForEachChannelBlock(work, *context.pool, [&](int64_t first, int64_t size) {
    ScanChannels<kFunctions>(args, first, size);
  });
}

constexpr F32Kernel kReference{.act_inputs = 0b1111, .run = SelectiveScanReference};

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"selective_scan", "avx512", 30, OnAvx512, Run<kSelectiveAvx512>},
    {"selective_scan", "avx2", 20, OnAvx2, Run<kSelectiveAvx2>},
#endif
    {"selective_scan", "portable", 10, OnEveryCpu, Run<kSelectivePortable>},
    WidenedReference<&kReference>("selective_scan"),
};

constexpr OpDefinition kDefinition{"selective_scan", CheckSelectiveScan, kKernels};

}  // namespace

SelectiveScanArgs ToSelectiveScanArgs(const OpCall& call) {
  return {.x = call.inputs[0],
          .dt = call.inputs[1],
          .b = call.inputs[2],
          .c = call.inputs[3],
          .a_log = call.inputs[4],
          .d = call.inputs[5],
          .dt_bias = call.inputs[6],
          .state = call.inputs[7],
          .y = call.outputs[0],
          .batch = call.batch,
          .channels = call.inputs[7].shape[2],
          .states = call.inputs[7].shape[1]};
}

const OpDefinition& SelectiveScanOp() { return kDefinition; }

}  // namespace pagemill::ops
