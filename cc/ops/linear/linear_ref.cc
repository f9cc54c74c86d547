// The plain form of `linear`: dequantize a weight row, accumulate its products in double.
#include <span>

#include "cc/ops/block_format/block_format.h"
#include "cc/ops/linear/linear_driver.h"

namespace pagemill::ops::linear {

namespace {

void RunMatrix(const Operands& o, KernelContext& context) {
  context.pool->ParallelFor(o.m, 1, [&](int64_t begin, int64_t end, int worker) {
    float* row = reinterpret_cast<float*>(context.workspace.data()) + worker * o.k;
    for (int64_t m = begin; m < end; ++m) {
      DequantizeRow(o.dtype, o.weights + m * o.weight_stride, o.k, row);
      for (int64_t n = 0; n < o.n; ++n) {
        double sum = o.bias == nullptr ? 0.0 : o.bias[m];
        for (int64_t k = 0; k < o.k; ++k) {
          sum += static_cast<double>(row[k]) * o.x[n * o.x_stride + k];
        }
        o.y[n * o.y_stride + m] = static_cast<float>(sum);
      }
    }
  });
}

}  // namespace

void RunReference(const OpCall& call, KernelContext& context) {
  if (call.inputs[0].shape[0] == 0) return;
  for (size_t i = 0; i < call.outputs.size(); ++i) RunMatrix(ReadOperands(call, i), context);
}

int64_t ReferenceWorkspaceBytes(const OpCall& call, int32_t num_threads) {
  return num_threads * call.inputs[1].shape[1] * static_cast<int64_t>(sizeof(float));
}

}  // namespace pagemill::ops::linear
