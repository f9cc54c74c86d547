#include "cc/ops/embedding/embedding.h"

#include <string>

#include "cc/ops/block_format/block_format.h"

namespace pagemill::ops {
namespace {

// Rows that one thread takes at a time: a few microseconds of dequantization.
constexpr int64_t kGrainRows = 16;

Status CheckEmbedding(const OpCall& call) {
  if (call.inputs.size() != 2 || call.outputs.size() != 1) {
    return InvalidArgument("embedding: takes ids and W, and returns y");
  }
  const TensorView& ids = call.inputs[0];
  const TensorView& w = call.inputs[1];
  const TensorView& y = call.outputs[0];
  if (ids.rank != 1 || ids.dtype != DType::kI32) {
    return InvalidArgument("embedding: ids must be i32 of rank 1, got " +
                           std::string(Info(ids.dtype).name) + " of rank " +
                           std::to_string(ids.rank));
  }
  if (w.rank != 2 || !IsWeightDType(w.dtype) ||
      w.shape[1] % Info(w.dtype).block_elements != 0) {
    return InvalidArgument("embedding: W must be a weight of rank 2 with rows of whole blocks, got " +
                           std::string(Info(w.dtype).name) + " of rank " +
                           std::to_string(w.rank) + " with rows of " +
                           std::to_string(w.RowElements()) + " elements");
  }
  if (y.rank < 2 || y.dtype != DType::kF32 || y.shape[0] != ids.shape[0] ||
      y.RowElements() != w.shape[1]) {
    return InvalidArgument("embedding: y must be f32 [" + std::to_string(ids.shape[0]) + ", " +
                           std::to_string(w.shape[1]) + "], got " +
                           std::string(Info(y.dtype).name) + " with " +
                           std::to_string(y.shape[0]) + " rows of " +
                           std::to_string(y.RowElements()));
  }
  return OkStatus();
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
