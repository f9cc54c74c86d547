#include "cc/ops/mask_tokens/mask_tokens.h"

#include <algorithm>
#include <limits>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/sample/row_draw.h"
#include "cc/ops/sample/words.h"

namespace pagemill::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kBits = 32;  // of a word

Status CheckMaskTokens(const OpCall& call) {
  OperandCheck check("mask_tokens", call, /*inputs=*/3, /*outputs=*/1);
  check.Input(0, "x", DType::kF32, "L,V");
  check.Input(1, "draws", DType::kI32, "L,D");
  check.Input(2, "masks", DType::kI32, "M,W");
  check.Output(0, "y", DType::kF32, "L,V");
  check.Require(check.Dim('D') == kRowDrawWords, "draws must have 8 words a row");
  check.Require(check.Dim('W') == (check.Dim('V') + kBits - 1) / kBits,
                "masks must have a bit for each column of x");
  return check.Result();
}

constexpr Kernel kKernels[] = {
    {"mask_tokens", "portable", 10, InEveryType, mask_tokens::RunPortable},
    {"mask_tokens", "reference", 0, InEveryType, mask_tokens::RunReference},
};
constexpr AliasRule kMayAlias[] = {{.input = 0, .output = 0}};

constexpr OpDefinition kDefinition{"mask_tokens", CheckMaskTokens, kKernels, kMayAlias};

// Excludes columns [begin, end) of a row in place, according to a word of its mask.
void Exclude(uint32_t allowed, int64_t begin, int64_t end, float* row) {
  if (allowed == 0xFFFFFFFFu) return;
  for (int64_t v = begin; v < end; ++v) {
    const bool stays = (allowed >> (v - begin) & 1u) != 0 || !(row[v] < kInfinity);
    row[v] = stays ? row[v] : -kInfinity;
  }
}

}  // namespace

const OpDefinition& MaskTokensOp() { return kDefinition; }

namespace mask_tokens {

void RunPortable(const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const int64_t width = x.shape[1];
  context.pool->ParallelFor(x.shape[0], /*grain=*/1, [&](int64_t begin, int64_t end, int) {
    for (int64_t l = begin; l < end; ++l) {
      float* const y = call.outputs[0].Row<float>(l);
      if (y != x.Row<float>(l)) std::copy_n(x.Row<const float>(l), width, y);
      const auto draw = FromWords<RowDraw>(call.inputs[1], l);
      if (draw.mask < 0) continue;
      const int32_t* words = call.inputs[2].Row<const int32_t>(draw.mask);
      for (int64_t v = 0; v < width; v += kBits) {
        Exclude(static_cast<uint32_t>(*words++), v, std::min(v + kBits, width), y);
      }
    }
  });
}

}  // namespace mask_tokens

}  // namespace pagemill::ops
