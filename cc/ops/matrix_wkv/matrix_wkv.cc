#include "cc/ops/matrix_wkv/matrix_wkv.h"

#include <algorithm>
#include <string>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/states/channel_blocks.h"
#include "cc/ops/states/head_runs.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

constexpr size_t kInputs = 9, kRate = 5;

Status CheckMatrixWkv(const OpCall& call) {
  const bool removes = call.inputs.size() == kInputs && call.inputs[kRate].rank > 0;
  OperandCheck check("matrix_wkv", call, kInputs, /*outputs=*/removes ? 2 : 1);
  if (!check.ok()) return check.Result();
  check.Input(8, "state", DType::kF32, "P,H,K,V");
  check.ActInput(0, "receptance", "T,C*");
  if (call.inputs[1].rank == 1) {
    check.Input(1, "decay", DType::kF32, "C");
  } else {
    check.ActInput(1, "decay", "T,C*");
  }
  check.ActInput(2, "key", "T,C*");
  check.ActInput(3, "value", "T,Y*");
  check.Input(4, "bonus", DType::kF32, "C");
  if (removes) {
    check.ActInput(kRate, "rate", "T,C*");
    check.Input(6, "removal", DType::kF32, "C");
    check.Input(7, "boost", DType::kF32, "C");
    check.ActOutput(1, "own", "T,Y*");
  }
  check.ActOutput(0, "y", "T,Y*");
  const int64_t heads = check.Dim('H'), keys = check.Dim('K'), values = check.Dim('V');
  check.Require(keys <= kMaxWkvKeys, "keys must have at most " + std::to_string(kMaxWkvKeys) +
                                         " elements, got " + std::to_string(keys));
  check.Require(check.Dim('C') == heads * keys && check.Dim('Y') == heads * values,
                "rows must have " + std::to_string(heads * keys) + " elements, those of values " +
                    std::to_string(heads * values) + ", got " + std::to_string(check.Dim('C')) +
                    " and " + std::to_string(check.Dim('Y')));
  return check.Result();
}

// Tokens of a head that are prepared at a time: their rows stay in the first-level cache.
constexpr int64_t kChunk = 16;

// Computes one head over the tokens between two states.
template <const WkvHeadFunctions& kFunctions>
void RunHead(const MatrixWkvArgs& args, const StateRun& run, int64_t head) {
  const int64_t keys = args.keys, first = head * keys, first_value = head * args.values;
  const int64_t in_page = first * args.values;
  const auto of_head = [&](const TensorView& vector) { return vector.Data<const float>() + first; };
  float own[kChunk];
  float decay[kChunk * kMaxWkvKeys], key[kChunk * kMaxWkvKeys], share[kChunk * kMaxWkvKeys];
  float removed[(kChunk + 1) * kMaxWkvKeys];
  const float* source = SourceOf(args.state, run);
  if (source != nullptr) source += in_page;
  float* const target = args.state.Row<float>(run.target) + in_page;
  for (int64_t begin = run.begin; begin < run.end; begin += kChunk) {
    const int64_t tokens = std::min(kChunk, run.end - begin);
    for (int64_t t = 0; t < tokens; ++t) {
      const auto row = [&](const TensorView& rows) {
        return rows.Row<const float>(begin + t) + first;
      };
      WkvOperands operands = {
          .receptance = row(args.receptance),
          .decay = args.decay_is_shared() ? of_head(args.decay) : row(args.decay),
          .key = row(args.key),
          .bonus = of_head(args.bonus)};
      if (args.removes()) {
        operands.rate = row(args.rate);
        operands.removal = of_head(args.removal);
        operands.boost = of_head(args.boost);
      }
      own[t] = kFunctions.prepare(operands, keys,
                                  {.decay = decay + t * keys,
                                   .key = key + t * keys,
                                   .removed = removed + t * keys,
                                   .share = share + t * keys});
    }
    std::fill_n(removed + tokens * keys, keys, 0.0f);  // of the token behind them
    kFunctions.run({.source = source,
                    .target = target,
                    .receptance = args.receptance.Row<const float>(begin) + first,
                    .value = args.value.Row<const float>(begin) + first_value,
                    .own = own,
                    .y = args.y.Row<float>(begin) + first_value,
                    .own_y = args.removes() ? args.own.Row<float>(begin) + first_value : nullptr,
                    .update = {.decay = decay, .key = key, .removed = removed, .share = share},
                    .removes = args.removes(),
                    .tokens = tokens,
                    .keys = keys,
                    .values = args.values,
                    .receptance_stride = RowFloats(args.receptance),
                    .value_stride = RowFloats(args.value),
                    .y_stride = RowFloats(args.y),
                    .own_y_stride = args.removes() ? RowFloats(args.own) : 0});
    source = target;
  }
}

template <const WkvHeadFunctions& kFunctions>
void Run(const OpCall& call, KernelContext& context) {
  const MatrixWkvArgs args = ToMatrixWkvArgs(call);
  ForEachHeadRun(*args.batch, args.heads, args.keys * args.values, *context.pool,
                 [&](const StateRun& run, int64_t head) { RunHead<kFunctions>(args, run, head); });
}

constexpr F32Kernel kReference{.act_inputs = 0b101111, .run = MatrixWkvReference};

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"matrix_wkv", "avx512", 30, OnAvx512, Run<kWkvHeadAvx512>},
    {"matrix_wkv", "avx2", 20, OnAvx2, Run<kWkvHeadAvx2>},
#endif
    {"matrix_wkv", "portable", 10, OnEveryCpu, Run<kWkvHeadPortable>},
    WidenedReference<&kReference>("matrix_wkv"),
};

constexpr OpDefinition kDefinition{"matrix_wkv", CheckMatrixWkv, kKernels};

}  // namespace

MatrixWkvArgs ToMatrixWkvArgs(const OpCall& call) {
  return {.receptance = call.inputs[0],
          .decay = call.inputs[1],
          .key = call.inputs[2],
          .value = call.inputs[3],
          .bonus = call.inputs[4],
          .rate = call.inputs[kRate],
          .removal = call.inputs[6],
          .boost = call.inputs[7],
          .state = call.inputs[8],
          .y = call.outputs[0],
          .own = call.outputs.size() > 1 ? call.outputs[1] : TensorView{},
          .batch = call.batch,
          .heads = call.inputs[8].shape[1],
          .keys = call.inputs[8].shape[2],
          .values = call.inputs[8].shape[3]};
}

const OpDefinition& MatrixWkvOp() { return kDefinition; }

}  // namespace pagemill::ops
