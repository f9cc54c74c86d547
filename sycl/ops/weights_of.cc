#include "sycl/ops/weights_of.h"

#include <algorithm>
#include <limits>

#include "cc/ops/quantized/quantized.h"
#include "cc/tensor/quantized.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

// Elements from one matrix of a stack to the next; 0 if all are in one matrix.
int64_t MatrixStep(const TensorView& w, const TensorView& part) {
  const bool is_stack = w.rank == 3 && w.parts->format.row_step == 0 && part.rank > 0;
  return is_stack ? part.RowElements() : 0;
}

WeightMatrices ScaledOf(const TensorView& w) {
  const QuantizedFormat& format = w.parts->format;
  const TensorView& values = w.parts->values;
  const TensorView matrix = ops::PartOf(w, values, 0);
  const auto clamped = [](int64_t block, int64_t all) {
    return static_cast<int32_t>(std::clamp<int64_t>(all, 1, block));
  };
  return {.type = ElementTypeOf(w.dtype),
          .matrices = {values.data, w.rank == 3 ? values.row_stride_bytes : 0},
          .row_bytes = matrix.row_stride_bytes,
          .scales = {.data = w.parts->scales.Data<const float>(),
                     .matrix_step = MatrixStep(w, w.parts->scales),
                     .row_step = ops::PartOf(w, w.parts->scales, 0).shape[1],
                     .block_rows = clamped(format.block_rows, matrix.shape[0]),
                     .block_columns = clamped(format.block_columns, matrix.shape[1])}};
}

PackedOrder OrderOf(QuantizedLayout layout) {
  switch (layout) {
    case QuantizedLayout::kAwq:
      return PackedOrder::kAwqRows;
    case QuantizedLayout::kMxfp4:
    case QuantizedLayout::kNvfp4:
      return PackedOrder::kFp4;
    default:
      return PackedOrder::kColumns;
  }
}

WeightMatrices PackedOf(const TensorView& w) {
  const QuantizedParts& parts = *w.parts;
  const QuantizedFormat& format = parts.format;
  const ops::PackedShape shape =
      ops::PackedShapeOf(format, w.dtype, ops::PartOf(w, parts.values, 0));
  const int64_t in_word = w.dtype == DType::kU4 ? 8 : 4;
  const bool by_rows = ops::IsByRows(format), is_awq = format.layout == QuantizedLayout::kAwq;
  const auto part_of = [&](const TensorView& part, int64_t row_step, int64_t column_step) {
    return PackedPart{part.rank == 0 ? nullptr : part.data, MatrixStep(w, part), row_step,
                      column_step};
  };
  const bool has_exponents = format.layout == QuantizedLayout::kMxfp4;
  return {
      .type = w.dtype == DType::kU4 ? ElementType::kU4 : ElementType::kU8,
      .packed = {
          .order = OrderOf(format.layout),
          .scale_type = has_exponents ? ElementType::kU8 : ElementTypeOf(parts.scales.dtype),
          .values = by_rows ? part_of(parts.values, shape.columns / in_word, 1)
                            : part_of(parts.values, 1, is_awq ? shape.rows / in_word : shape.rows),
          .scales = by_rows ? part_of(parts.scales, shape.groups, 1)
                            : part_of(parts.scales, 1, shape.rows),
          .factors = parts.factor.rank == 0 ? nullptr : parts.factor.Data<const float>(),
          .factors_matrix_step = MatrixStep(w, parts.factor),
          .zeros = by_rows ? part_of(parts.zeros, shape.groups, 1)
                           : part_of(parts.zeros, 1, shape.rows / in_word),
          .groups = parts.groups.rank == 0 ? nullptr : parts.groups.Data<const int32_t>(),
          .groups_matrix_step = MatrixStep(w, parts.groups),
          .first_row = format.first_row,
          .matrix_rows = format.row_step,
          .first_column = static_cast<int32_t>(format.first_column),
          .group_columns = static_cast<int32_t>(std::min(format.block_columns, shape.columns)),
          .num_groups = static_cast<int32_t>(shape.groups),
          .zero_offset = format.layout == QuantizedLayout::kGptq ? 1 : 0}};
}

}  // namespace

bool AreReadable(const TensorView& weights) {
  // Kernels count columns of quantized weights in 32 bits.
  constexpr int64_t kMaxColumns = std::numeric_limits<int32_t>::max();
  if (weights.parts == nullptr) return IsPlainWeight(weights);
  if (ops::IsScaled(weights)) return weights.shape[weights.rank - 1] <= kMaxColumns;
  const TensorView values = ops::PartOf(weights, weights.parts->values, 0);
  return ops::PackedShapeOf(weights.parts->format, weights.dtype, values).columns <= kMaxColumns;
}

WeightMatrices WeightsOf(const TensorView& weights) {
  if (weights.parts != nullptr) {
    return ops::IsScaled(weights) ? ScaledOf(weights) : PackedOf(weights);
  }
  const bool is_stack = weights.rank == 3;
  const int64_t columns = weights.shape[weights.rank - 1];
  return {.type = ElementTypeOf(weights.dtype),
          .matrices = {weights.data, is_stack ? weights.row_stride_bytes : 0},
          .row_bytes =
              is_stack ? RowBytes(weights.dtype, columns) : weights.row_stride_bytes};
}

}  // namespace pagemill::sycl
