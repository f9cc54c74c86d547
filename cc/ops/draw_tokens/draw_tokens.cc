#include "cc/ops/draw_tokens/draw_tokens.h"

#include <span>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/sample/row_draw.h"
#include "cc/ops/sample/row_passes.h"
#include "cc/ops/sample/words.h"

namespace pagemill::ops {
namespace {

Status CheckDrawTokens(const OpCall& call) {
  OperandCheck check("draw_tokens", call, /*inputs=*/4, /*outputs=*/1);
  check.Input(0, "x", DType::kF32, "L,V");
  check.Input(1, "columns", DType::kI32, "L");
  check.Input(2, "values", DType::kF32, "L");
  check.Input(3, "draws", DType::kI32, "L,D");
  check.Output(0, "y", DType::kI32, "L");
  check.Require(check.Dim('D') == kRowDrawWords, "draws must have 8 words a row");
  return check.Result();
}

int64_t WorkspaceBytes(const OpCall& call, int32_t num_threads) {
  return num_threads * call.inputs[0].shape[1] * static_cast<int64_t>(sizeof(Candidate));
}

template <const RowPasses& kPasses>
void Run(const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const auto width = static_cast<size_t>(x.shape[1]);
  auto* const storage = reinterpret_cast<Candidate*>(context.workspace.data());
  context.pool->ParallelFor(x.shape[0], /*grain=*/1, [&](int64_t begin, int64_t end, int worker) {
    const std::span candidates(storage + static_cast<size_t>(worker) * width, width);
    for (int64_t l = begin; l < end; ++l) {
      const MaxEntry max = {.token_id = *call.inputs[1].Row<const int32_t>(l),
                            .logit = *call.inputs[2].Row<const float>(l)};
      int32_t* const y = call.outputs[0].Row<int32_t>(l);
      *y = max.token_id;
      if (max.token_id < 0) continue;
      const auto draw = FromWords<RowDraw>(call.inputs[3], l);
      *y = DrawRow(kPasses, {x.Row<const float>(l), width}, max, draw, candidates);
    }
  });
}

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    {"draw_tokens", "avx512", 30, OnAvx512, Run<kRowPassesAvx512>, WorkspaceBytes},
    {"draw_tokens", "avx2", 20, OnAvx2, Run<kRowPassesAvx2>, WorkspaceBytes},
#endif
    {"draw_tokens", "portable", 10, OnEveryCpu, Run<kRowPassesPortable>, WorkspaceBytes},
    {"draw_tokens", "reference", 0, InEveryType, draw_tokens::RunReference},
};
constexpr AliasRule kMayAlias[] = {{.input = 1, .output = 0}};

constexpr OpDefinition kDefinition{"draw_tokens", CheckDrawTokens, kKernels, kMayAlias};

}  // namespace

const OpDefinition& DrawTokensOp() { return kDefinition; }

}  // namespace pagemill::ops
