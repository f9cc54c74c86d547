// `moe_combine` in blocks of columns with sums in registers.
#include <algorithm>
#include <cstdint>

#include "cc/ops/moe_combine/moe_combine.h"
#include "cc/ops/row_split.h"

namespace pagemill::ops::moe_combine {
namespace {

constexpr int64_t kColumns = 32;

// Computes kColumns sums, or `count` if fewer, in the same order.
void CombineColumns(const float* x, const float* weights, int64_t choices, int64_t step,
                    int64_t count, float* y) {
  if (count == kColumns) {
    float sums[kColumns] = {};
    for (int64_t j = 0; j < choices; ++j) {
      for (int64_t i = 0; i < kColumns; ++i) sums[i] += weights[j] * x[j * step + i];
    }
    std::copy_n(sums, kColumns, y);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < choices; ++j) sum += weights[j] * x[j * step + i];
    y[i] = sum;
  }
}

}  // namespace

void RunPortable(const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& weights = call.inputs[1];
  const TensorView& y = call.outputs[0];
  const int64_t width = y.RowElements(), step = ChoiceStep(call);
  const int64_t choices = weights.shape[1];
  const int64_t blocks = (width + kColumns - 1) / kColumns;
  // Blocks of columns of all tokens are one list, so threads share even a single token.
  context.pool->ParallelFor(
      y.shape[0] * blocks, RowsPerChunk(kColumns * choices), [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t n = i / blocks, column = i % blocks * kColumns;
          CombineColumns(x.Row<const float>(n) + column, weights.Row<const float>(n), choices,
                         step, std::min(kColumns, width - column), y.Row<float>(n) + column);
        }
      });
}

}  // namespace pagemill::ops::moe_combine
