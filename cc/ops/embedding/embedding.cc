#include "cc/ops/embedding/embedding.h"

#include <string>

#include "cc/ops/block_format/block_format.h"
#include "cc/ops/operand_check.h"

namespace pagemill::ops {
namespace {

// Rows that one thread takes at a time: a few microseconds of dequantization.
constexpr int64_t kGrainRows = 16;

Status CheckEmbedding(const OpCall& call) {
  OperandCheck check("embedding", call, /*inputs=*/2, /*outputs=*/1);
  if (!check.ok()) return check.Result();
  const DType dtype = call.inputs[1].dtype;
  check.Require(IsWeightDType(dtype),
                "W must be a weight dtype, got " + std::string(Info(dtype).name));
  check.Input(0, "ids", DType::kI32, "N");
  check.Input(1, "W", dtype, "V,H");
  check.Require(check.Dim('H') % Info(dtype).block_elements == 0,
                "rows of W have " + std::to_string(check.Dim('H')) +
                    " elements, no multiple of the block of " +
                    std::to_string(Info(dtype).block_elements) + " of " +
                    std::string(Info(dtype).name));
  check.Output(0, "y", DType::kF32, "N,H*");
  return check.Result();
}

bool Always(const device::Capabilities&, const OpCall&) { return true; }

constexpr KernelRow kRows[] = {
    {"embedding", "portable", 10, Always, embedding::RunPortable},
    {"embedding", "reference", 0, Always, embedding::RunReference},
};

constexpr OpDefinition kDefinition{"embedding", CheckEmbedding, kRows};

}  // namespace

const OpDefinition& EmbeddingOp() { return kDefinition; }

namespace embedding {

void RunPortable(const OpCall& call, KernelContext& context) {
  const TensorView& ids = call.inputs[0];
  const TensorView& w = call.inputs[1];
  const TensorView& y = call.outputs[0];
  const float scale = static_cast<float>(call.attributes->Get("scale", 1.0));
  context.pool->ParallelFor(ids.shape[0], kGrainRows, [&](int64_t begin, int64_t end, int) {
    for (int64_t n = begin; n < end; ++n) {
      float* row = y.Row<float>(n);
      DequantizeRow(w.dtype, w.Row<const uint8_t>(ids.Data<const int32_t>()[n]), w.shape[1], row);
      if (scale == 1.0f) continue;
      for (int64_t i = 0; i < w.shape[1]; ++i) row[i] *= scale;
    }
  });
}

}  // namespace embedding

}  // namespace pagemill::ops
