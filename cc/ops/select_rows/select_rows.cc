#include "cc/ops/select_rows/select_rows.h"

#include <cstring>
#include <string>

namespace pagemill::ops {
namespace {

// Rows that one thread takes at a time: some 30 KB of a small model, a microsecond or two.
constexpr int64_t kGrainRows = 16;

Status CheckSelectRows(const OpCall& call) {
  if (call.inputs.size() != 2 || call.outputs.size() != 1) {
    return InvalidArgument("select_rows: takes x and rows, and returns y");
  }
  const TensorView& x = call.inputs[0];
  const TensorView& rows = call.inputs[1];
  const TensorView& y = call.outputs[0];
  if (x.rank < 2 || x.dtype != DType::kF32) {
    return InvalidArgument("select_rows: x must be f32 of rank 2 or more, got " +
                           std::string(Info(x.dtype).name) + " of rank " +
                           std::to_string(x.rank));
  }
  if (rows.rank != 1 || rows.dtype != DType::kI32) {
    return InvalidArgument("select_rows: rows must be i32 of rank 1, got " +
                           std::string(Info(rows.dtype).name) + " of rank " +
                           std::to_string(rows.rank));
  }
  if (y.rank < 2 || y.dtype != DType::kF32 || y.shape[0] != rows.shape[0] ||
      y.RowElements() != x.RowElements()) {
    return InvalidArgument("select_rows: y must be f32 with " + std::to_string(rows.shape[0]) +
                           " rows of " + std::to_string(x.RowElements()) + " elements, got " +
                           std::string(Info(y.dtype).name) + " with " +
                           std::to_string(y.shape[0]) + " rows of " +
                           std::to_string(y.RowElements()));
  }
  return OkStatus();
}

bool Always(const device::Capabilities&, const OpCall&) { return true; }

constexpr KernelRow kRows[] = {
    {"select_rows", "portable", 10, Always, select_rows::RunPortable},
    {"select_rows", "reference", 0, Always, select_rows::RunReference},
};

constexpr OpDefinition kDefinition{"select_rows", CheckSelectRows, kRows};

}  // namespace

const OpDefinition& SelectRowsOp() { return kDefinition; }

namespace select_rows {

void RunPortable(const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& rows = call.inputs[1];
  const TensorView& y = call.outputs[0];
  const size_t bytes = static_cast<size_t>(RowBytes(DType::kF32, x.RowElements()));
  context.pool->ParallelFor(rows.shape[0], kGrainRows, [&](int64_t begin, int64_t end, int) {
    for (int64_t l = begin; l < end; ++l) {
      std::memcpy(y.Row<uint8_t>(l), x.Row<const uint8_t>(rows.Data<const int32_t>()[l]), bytes);
    }
  });
}

}  // namespace select_rows

}  // namespace pagemill::ops
