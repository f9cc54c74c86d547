#include "cc/ops/state_space_scan/state_space_scan.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/state_space_scan/scan_chunk.h"
#include "cc/ops/states/head_runs.h"
#include "cc/ops/states/state_pages.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

Status CheckStateSpaceScan(const OpCall& call) {
  OperandCheck check("state_space_scan", call, /*inputs=*/6, /*outputs=*/1);
  check.Input(5, "state", DType::kF32, "A,H,N,P");
  check.ActInput(1, "dt", "T,H");
  check.ActInput(0, "xbc", "T,W*");
  check.Input(2, "a_log", DType::kF32, "H");
  check.Input(3, "d", DType::kF32, "H");
  check.Input(4, "dt_bias", DType::kF32, "H");
  check.ActOutput(0, "y", "T,Y*");
  const int64_t heads = check.Dim('H'), states = check.Dim('N'), x = heads * check.Dim('P');
  check.Require(check.Dim('Y') == x, "y must have rows of " + std::to_string(x) +
                                         " elements, got " + std::to_string(check.Dim('Y')));
  if (!check.ok()) return check.Result();
  const int64_t rest = check.Dim('W') - x, groups = rest / (2 * states);
  check.Require(groups > 0 && rest == groups * 2 * states && heads % groups == 0,
                "rows of xbc must hold x of " + std::to_string(x) +
                    " elements and B and C of groups that divide " + std::to_string(heads) +
                    " heads, " + std::to_string(states) + " elements each; they have " +
                    std::to_string(check.Dim('W')));
  return check.Result();
}

// log(1 + e^x), without overflow.
float Softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

// Computes one head over the tokens between two states.
template <ScanChunkFunction kScan>
void ScanHead(const StateSpaceScanArgs& args, const StateRun& run, int64_t head) {
  const float rate = -std::exp(args.a_log.Data<const float>()[head]);
  const float bias = args.dt_bias.Data<const float>()[head];
  const int64_t offset = head * args.states * args.head_dim;
  float decay[kMaxScanTokens], step[kMaxScanTokens];
  float* const target = args.state.Row<float>(run.target) + offset;
  const float* source =
      run.source == kNullPage ? nullptr : args.state.Row<const float>(run.source) + offset;
  for (int64_t begin = run.begin; begin < run.end; begin += kMaxScanTokens) {
    const int64_t tokens = std::min(kMaxScanTokens, run.end - begin);
    for (int64_t t = 0; t < tokens; ++t) {
      step[t] = Softplus(args.dt.Row<const float>(begin + t)[head] + bias);
      decay[t] = std::exp(step[t] * rate);
    }
    const float* row = args.xbc.Row<const float>(begin);
    kScan({.source = source,
           .target = target,
           .x = row + head * args.head_dim,
           .b = row + args.BOffset(head),
           .c = row + args.COffset(head),
           .y = args.y.Row<float>(begin) + head * args.head_dim,
           .decay = decay,
           .step = step,
           .skip = args.d.Data<const float>()[head],
           .tokens = tokens,
           .states = args.states,
           .head_dim = args.head_dim,
           .row_stride = args.xbc.row_stride_bytes / static_cast<int64_t>(sizeof(float)),
           .y_stride = args.y.row_stride_bytes / static_cast<int64_t>(sizeof(float))});
    source = target;
  }
}

template <ScanChunkFunction kScan>
void Run(const OpCall& call, KernelContext& context) {
  const StateSpaceScanArgs args = ToStateSpaceScanArgs(call);
  ForEachHeadRun(*args.batch, args.heads, args.states * args.head_dim, *context.pool,
                 [&](const StateRun& run, int64_t head) { ScanHead<kScan>(args, run, head); });
}

constexpr F32Kernel kReference{.act_inputs = 0b11, .run = StateSpaceScanReference};

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"state_space_scan", "avx512", 30, OnAvx512, Run<ScanChunkAvx512>},
    {"state_space_scan", "avx2", 20, OnAvx2, Run<ScanChunkAvx2>},
#endif
    {"state_space_scan", "portable", 10, OnEveryCpu, Run<ScanChunkPortable>},
    WidenedReference<&kReference>("state_space_scan"),
};

constexpr OpDefinition kDefinition{"state_space_scan", CheckStateSpaceScan, kKernels};

}  // namespace

StateSpaceScanArgs ToStateSpaceScanArgs(const OpCall& call) {
  StateSpaceScanArgs args{.xbc = call.inputs[0],
                          .dt = call.inputs[1],
                          .a_log = call.inputs[2],
                          .d = call.inputs[3],
                          .dt_bias = call.inputs[4],
                          .state = call.inputs[5],
                          .y = call.outputs[0],
                          .batch = call.batch,
                          .heads = call.inputs[5].shape[1],
                          .states = call.inputs[5].shape[2],
                          .head_dim = call.inputs[5].shape[3]};
  args.groups = (args.xbc.RowElements() - args.heads * args.head_dim) / (2 * args.states);
  return args;
}

const OpDefinition& StateSpaceScanOp() { return kDefinition; }

}  // namespace pagemill::ops
