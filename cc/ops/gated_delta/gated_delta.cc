#include "cc/ops/gated_delta/gated_delta.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "cc/ops/gated_delta/delta_chunk.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/states/head_runs.h"
#include "cc/ops/states/state_pages.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

Status CheckGatedDelta(const OpCall& call) {
  OperandCheck check("gated_delta", call, /*inputs=*/6, /*outputs=*/1);
  check.Input(5, "state", DType::kF32, "P,H,K,V");
  check.ActInput(0, "qkv", "T,W*");
  check.ActInput(1, "b", "T,H*");
  check.ActInput(2, "a", "T,A*");
  check.Input(3, "a_log", DType::kF32, "H");
  check.Input(4, "dt_bias", DType::kF32, "A");
  check.ActOutput(0, "y", "T,Y*");
  check.IntegerAttribute("by_group", /*fallback=*/0, 0, 1);
  check.IntegerAttribute("in_turn", /*fallback=*/0, 0, 1);
  check.Require(call.attributes->GetInt("by_group", 0) + call.attributes->GetInt("in_turn", 0) < 2,
                "attributes by_group and in_turn exclude each other");
  const double share_scale = call.attributes->Get("share_scale", 1);
  check.Require(share_scale >= 0 && share_scale <= 2,
                "attribute share_scale must be a number from 0 to 2");
  const int64_t heads = check.Dim('H'), keys = check.Dim('K'), y = heads * check.Dim('V');
  check.Require(keys <= kMaxDeltaKeys, "keys must have at most " + std::to_string(kMaxDeltaKeys) +
                                           " elements, got " + std::to_string(keys));
  check.Require(check.Dim('A') == heads || check.Dim('A') == heads * keys,
                "a must have rows of " + std::to_string(heads) + " elements, or of " +
                    std::to_string(heads * keys) + ", got " + std::to_string(check.Dim('A')));
  check.Require(check.Dim('Y') == y, "y must have rows of " + std::to_string(y) +
                                         " elements, got " + std::to_string(check.Dim('Y')));
  if (!check.ok()) return check.Result();
  const int64_t rest = check.Dim('W') - y, groups = rest / (2 * keys);
  check.Require(groups > 0 && rest == groups * 2 * keys && heads % groups == 0,
                "rows of qkv must hold v of " + std::to_string(y) +
                    " elements, and q and k of groups that divide " + std::to_string(heads) +
                    " heads, " + std::to_string(keys) + " elements each; they have " +
                    std::to_string(check.Dim('W')));
  return check.Result();
}

// x times `scale` divided by its norm, [size], in `y`.
template <const DeltaFunctions& kFunctions>
void Normalize(const float* x, float scale, int64_t size, float* y) {
  const float factor = scale / std::sqrt(kFunctions.sum_squares(x, size) + kDeltaNormEps);
  for (int64_t i = 0; i < size; ++i) y[i] = x[i] * factor;
}

// Computes one head over the tokens between two states.
template <const DeltaFunctions& kFunctions>
void DeltaHead(const GatedDeltaArgs& args, const StateRun& run, int64_t head) {
  const float rate = -std::exp(args.a_log.Data<const float>()[head]);
  const float* bias = args.dt_bias.Data<const float>() + head * args.rates;
  const float scale = 1.0f / std::sqrt(static_cast<float>(args.keys));
  const int64_t offset = head * args.keys * args.values;
  const int64_t most = DeltaChunkTokens(args.keys);
  float q[kDeltaRowFloats], k[kDeltaRowFloats], decay[kDeltaRowFloats], decayed_k[kDeltaRowFloats];
  float share[kMaxDeltaTokens];
  float* const target = args.state.Row<float>(run.target) + offset;
  const float* source =
      run.source == kNullPage ? nullptr : args.state.Row<const float>(run.source) + offset;
  for (int64_t begin = run.begin; begin < run.end; begin += most) {
    const int64_t tokens = std::min(most, run.end - begin);
    for (int64_t t = 0; t < tokens; ++t) {
      const float* row = args.qkv.Row<const float>(begin + t);
      Normalize<kFunctions>(row + args.QOffset(head), scale, args.keys, q + t * args.keys);
      Normalize<kFunctions>(row + args.KOffset(head), 1.0f, args.keys, k + t * args.keys);
      const float* a = args.a.Row<const float>(begin + t) + head * args.rates;
      float* const decays = decay + t * args.keys;
      kFunctions.make_decays(a, bias, rate, args.rates, decays);
      if (args.rates == 1) std::fill_n(decays + 1, args.keys - 1, decays[0]);
      for (int64_t i = t * args.keys; i < (t + 1) * args.keys; ++i) decayed_k[i] = k[i] * decay[i];
      const float b = args.b.Row<const float>(begin + t)[head];
      share[t] = args.share_scale / (1.0f + std::exp(-b));
    }
    kFunctions.run({.source = source,
                    .target = target,
                    .q = q,
                    .k = k,
                    .v = args.qkv.Row<const float>(begin) + args.VOffset(head),
                    .y = args.y.Row<float>(begin) + head * args.values,
                    .decay = decay,
                    .decayed_k = decayed_k,
                    .share = share,
                    .tokens = tokens,
                    .keys = args.keys,
                    .values = args.values,
                    .row_stride = args.qkv.row_stride_bytes / static_cast<int64_t>(sizeof(float)),
                    .y_stride = args.y.row_stride_bytes / static_cast<int64_t>(sizeof(float))});
    source = target;
  }
}

template <const DeltaFunctions& kFunctions>
void Run(const OpCall& call, KernelContext& context) {
  const GatedDeltaArgs args = ToGatedDeltaArgs(call);
  ForEachHeadRun(
      *args.batch, args.heads, args.keys * args.values, *context.pool,
      [&](const StateRun& run, int64_t head) { DeltaHead<kFunctions>(args, run, head); });
}

constexpr F32Kernel kReference{.act_inputs = 0b111, .run = GatedDeltaReference};

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"gated_delta", "avx512", 30, OnAvx512, Run<kDeltaAvx512>},
    {"gated_delta", "avx2", 20, OnAvx2, Run<kDeltaAvx2>},
#endif
    {"gated_delta", "portable", 10, OnEveryCpu, Run<kDeltaPortable>},
    WidenedReference<&kReference>("gated_delta"),
};

constexpr OpDefinition kDefinition{"gated_delta", CheckGatedDelta, kKernels};

}  // namespace

GatedDeltaArgs ToGatedDeltaArgs(const OpCall& call) {
  GatedDeltaArgs args{.qkv = call.inputs[0],
                      .b = call.inputs[1],
                      .a = call.inputs[2],
                      .a_log = call.inputs[3],
                      .dt_bias = call.inputs[4],
                      .state = call.inputs[5],
                      .y = call.outputs[0],
                      .batch = call.batch,
                      .heads = call.inputs[5].shape[1],
                      .keys = call.inputs[5].shape[2],
                      .values = call.inputs[5].shape[3],
                      .by_group = call.attributes->GetInt("by_group", 0) != 0,
                      .in_turn = call.attributes->GetInt("in_turn", 0) != 0,
                      .share_scale = static_cast<float>(call.attributes->Get("share_scale", 1))};
  args.rates = args.a.RowElements() / args.heads;
  args.groups = (args.qkv.RowElements() - args.heads * args.values) / (2 * args.keys);
  return args;
}

const OpDefinition& GatedDeltaOp() { return kDefinition; }

}  // namespace pagemill::ops
