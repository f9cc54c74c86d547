#include "cc/ops/quantized/quantized.h"

#include <string>

#include "cc/ops/block_format/block_format.h"
#include "cc/ops/quantized/converted_blocks.h"
#include "cc/ops/quantized/packed_integers.h"
#include "cc/tensor/float8.h"

namespace pagemill::ops {
namespace {

constexpr int64_t kMaxGroup = int64_t{1} << 31;

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::string Text(const TensorView& view) {
  std::string text(Info(view.dtype).name);
  for (int32_t i = 0; i < view.rank; ++i) {
    text += (i == 0 ? " [" : ",") + std::to_string(view.shape[static_cast<size_t>(i)]);
  }
  return text + "]";
}

bool HasShape(const TensorView& part, int64_t rows, int64_t columns) {
  return part.rank == 2 && part.shape[0] == rows && part.shape[1] == columns;
}

bool IsReal(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32;
}

Status CheckScaled(const TensorView& w, const QuantizedParts& parts, const TensorView& values,
                   const TensorView& scales) {
  const QuantizedFormat& format = parts.format;
  const int64_t m = w.shape[static_cast<size_t>(w.rank - 2)];
  const int64_t k = w.shape[static_cast<size_t>(w.rank - 1)];
  if ((w.dtype != DType::kI8 && w.dtype != DType::kF8E4M3) || values.dtype != w.dtype ||
      !HasShape(values, m, k)) {
    return InvalidArgument("W " + Text(w) +
                           " with scales must be i8 or f8_e4m3 and have values of " +
                           "its dtype and shape, got " + Text(values));
  }
  if (parts.zeros.rank != 0 || parts.groups.rank != 0 || parts.factor.rank != 0 ||
      format.first_row != 0 || format.first_column != 0 || format.row_step != 0) {
    return InvalidArgument(
        "W with scales must not have zeros, groups or a place in another matrix");
  }
  if (format.block_rows < 1 || format.block_columns < 1 ||
      (format.block_columns % 4 != 0 && format.block_columns < k)) {
    return InvalidArgument("blocks of W must have a multiple of 4 columns, got " +
                           std::to_string(format.block_rows) + " x " +
                           std::to_string(format.block_columns));
  }
  if (scales.dtype == DType::kF32 &&
      HasShape(scales, DivideUp(m, format.block_rows), DivideUp(k, format.block_columns))) {
    return OkStatus();
  }
  return InvalidArgument("scales are " + Text(scales) + ", but W is " + Text(w) + " in blocks of " +
                         std::to_string(format.block_rows) + " x " +
                         std::to_string(format.block_columns));
}

Status CheckPackedParts(const TensorView& w, const QuantizedParts& parts, const TensorView& values,
                        const TensorView& scales, const PackedShape& shape) {
  const int64_t words = w.dtype == DType::kU4 ? 8 : 4;
  const bool by_rows = IsByRows(parts.format);
  const bool has_fp4 = HasFp4(parts.format);
  const bool is_nvfp4 = parts.format.layout == QuantizedLayout::kNvfp4;
  const DType scale_type = is_nvfp4 ? DType::kF8E4M3 : DType::kU8;
  const auto refuse = [&](const char* what, const TensorView& got) {
    return InvalidArgument(std::string(what) + " of W are " + Text(got) + " for " +
                           std::to_string(shape.rows) + " rows, " + std::to_string(shape.columns) +
                           " columns and " + std::to_string(shape.groups) + " groups");
  };
  if (values.dtype != DType::kI32) return refuse("values", values);
  if ((has_fp4 ? scales.dtype != scale_type : !IsReal(scales.dtype)) ||
      !HasShape(scales, by_rows ? shape.rows : shape.groups, by_rows ? shape.groups : shape.rows)) {
    return refuse("scales", scales);
  }
  const TensorView factor = PartOf(w, parts.factor, 0);
  const bool has_factor = factor.dtype == DType::kF32 && factor.rank == 1 && factor.shape[0] == 1;
  if (is_nvfp4 ? !has_factor : parts.factor.rank != 0) {
    return InvalidArgument("W in layout " + std::string(NameOf(parts.format.layout)) +
                           (is_nvfp4 ? " must have a factor, f32 [1]" : " must have no factor"));
  }
  if (has_fp4) {
    if (parts.zeros.rank == 0 && parts.groups.rank == 0) return OkStatus();
    return InvalidArgument("W in layout " + std::string(NameOf(parts.format.layout)) +
                           " must have no zeros and no groups");
  }
  if (parts.zeros.rank != 0) {
    const TensorView zeros = PartOf(w, parts.zeros, 0);
    const bool fits =
        by_rows ? HasShape(zeros, DivideUp(shape.rows, words), shape.groups)
                : shape.rows % words == 0 && HasShape(zeros, shape.groups, shape.rows / words);
    if (!fits || zeros.dtype != DType::kI32) return refuse("zeros", zeros);
  }
  if (parts.groups.rank == 0) return OkStatus();
  const TensorView groups = PartOf(w, parts.groups, 0);
  const bool fits = groups.dtype == DType::kI32 && groups.rank == 1;
  return fits && groups.shape[0] == shape.columns ? OkStatus() : refuse("groups", groups);
}

Status CheckPacked(const TensorView& w, const QuantizedParts& parts, const TensorView& values,
                   const TensorView& scales) {
  const QuantizedFormat& format = parts.format;
  const bool has_fp4 = HasFp4(format);
  const bool has_4_bits = has_fp4 || format.layout == QuantizedLayout::kAwq;
  if (w.dtype != DType::kU4 && (w.dtype != DType::kU8 || has_4_bits)) {
    const std::string wanted = has_4_bits ? "u4" : "u4 or u8";
    return InvalidArgument("W in layout " + std::string(NameOf(format.layout)) + " must be " +
                           wanted + ", got " + std::string(Info(w.dtype).name));
  }
  const int64_t group = format.block_columns;
  const int64_t group_of_fp4 =
      format.layout == QuantizedLayout::kNvfp4 ? kNvfp4Group : int64_t{kPackedBlock};
  if (has_fp4 && (format.block_rows != 1 || group != group_of_fp4)) {
    return InvalidArgument("blocks of W in layout " + std::string(NameOf(format.layout)) +
                           " must have one row and " + std::to_string(group_of_fp4) +
                           " columns, got " + std::to_string(format.block_rows) + " x " +
                           std::to_string(group));
  }
  if (!has_fp4 && (format.block_rows != 1 || group < kPackedBlock || group > kMaxGroup ||
                   group % kPackedBlock != 0)) {
    return InvalidArgument(
        "blocks of W must have one row and a multiple of 32 columns up to 2^31, "
        "got " +
        std::to_string(format.block_rows) + " x " + std::to_string(group));
  }
  if (values.rank != 2) return InvalidArgument("values of W must have two dimensions");
  const PackedShape shape = PackedShapeOf(format, w.dtype, values);
  PAGEMILL_RETURN_IF_ERROR(CheckPackedParts(w, parts, values, scales, shape));
  const auto within = [](int64_t first, int64_t count, int64_t of) {
    return first >= 0 && count <= of && first <= of - count;
  };
  const int64_t m = w.shape[static_cast<size_t>(w.rank - 2)];
  const int64_t k = w.shape[static_cast<size_t>(w.rank - 1)];
  const int64_t steps = w.rank == 3 ? (w.shape[0] - 1) * format.row_step : 0;
  if (format.row_step >= 0 && within(format.first_row, steps + m, shape.rows) &&
      within(format.first_column, k, shape.columns) && format.first_column % kPackedBlock == 0 &&
      k % kPackedBlock == 0) {
    return OkStatus();
  }
  return InvalidArgument("W " + Text(w) + " at row " + std::to_string(format.first_row) +
                         " and column " + std::to_string(format.first_column) +
                         " is not a part of a matrix of " + std::to_string(shape.rows) + "," +
                         std::to_string(shape.columns) + "; columns come in multiples of 32");
}

}  // namespace

PackedShape PackedShapeOf(const QuantizedFormat& format, DType dtype, const TensorView& values) {
  const int64_t words = dtype == DType::kU4 ? 8 : 4;
  PackedShape shape;
  switch (format.layout) {
    case QuantizedLayout::kScaled:
      break;
    case QuantizedLayout::kAwq:
      shape = {.rows = values.shape[1] * words, .columns = values.shape[0]};
      break;
    case QuantizedLayout::kGptq:
    case QuantizedLayout::kGptqV2:
      shape = {.rows = values.shape[1], .columns = values.shape[0] * words};
      break;
    case QuantizedLayout::kPackQuantized:
    case QuantizedLayout::kMxfp4:
    case QuantizedLayout::kNvfp4:
      shape = {.rows = values.shape[0], .columns = values.shape[1] * words};
      break;
  }
  shape.groups = DivideUp(shape.columns, format.block_columns);
  return shape;
}

TensorView PartOf(const TensorView& weight, const TensorView& part, int64_t matrix) {
  const bool is_shared = weight.parts != nullptr && weight.parts->format.row_step > 0;
  if (weight.rank < 3 || part.rank == 0 || is_shared) return part;
  TensorView view = TensorView::Dense(part.Row<void>(matrix), part.dtype, {});
  view.rank = part.rank - 1;
  for (int32_t i = 0; i < view.rank; ++i) {
    view.shape[static_cast<size_t>(i)] = part.shape[static_cast<size_t>(i + 1)];
  }
  view.row_stride_bytes = RowBytes(view.dtype, view.RowElements());
  return view;
}

MatrixOfStack::MatrixOfStack(const TensorView& stack, int64_t matrix) : view_(stack) {
  view_.parts = nullptr;
  view_ = PartOf(view_, view_, matrix);
  if (stack.parts == nullptr) return;
  QuantizedFormat format = stack.parts->format;
  format.first_row += matrix * format.row_step;
  format.row_step = 0;
  parts_ = {.format = format,
            .values = PartOf(stack, stack.parts->values, matrix),
            .scales = PartOf(stack, stack.parts->scales, matrix),
            .zeros = PartOf(stack, stack.parts->zeros, matrix),
            .groups = PartOf(stack, stack.parts->groups, matrix),
            .factor = PartOf(stack, stack.parts->factor, matrix)};
  view_.data = parts_.values.data;
  view_.parts = &parts_;
}

Status CheckWeight(const TensorView& w) {
  if (w.rank != 2 && w.rank != 3) return InvalidArgument("W must be a matrix or a stack of them");
  const int64_t k = w.shape[static_cast<size_t>(w.rank - 1)];
  const DTypeInfo& info = Info(w.dtype);
  if (w.parts == nullptr) {
    if (!IsWeightDType(w.dtype) && !IsConvertedFormat(w.dtype)) {
      return InvalidArgument("W must be a weight dtype, got " + std::string(info.name));
    }
    if (k % info.block_elements == 0) return OkStatus();
    return InvalidArgument("rows of W have " + std::to_string(k) +
                           " elements, not a multiple of the block of " +
                           std::to_string(info.block_elements) + " of " + std::string(info.name));
  }
  const QuantizedParts& parts = *w.parts;
  for (const TensorView* part : parts.all()) {
    if (part->rank == 0 && part != &parts.values && part != &parts.scales) continue;
    const bool strided = part == &parts.values && IsScaled(w);
    const bool is_whole = w.rank == 2 || parts.format.row_step > 0;
    const bool fits = is_whole || (part->rank > 1 && part->shape[0] == w.shape[0]);
    if (fits && part->rank > 0 && (strided || part->IsDense())) continue;
    return InvalidArgument("parts of W " + Text(w) +
                           " must be dense and as many as its matrices, " + "got " + Text(*part));
  }
  const TensorView values = PartOf(w, parts.values, 0), scales = PartOf(w, parts.scales, 0);
  return IsScaled(w) ? CheckScaled(w, parts, values, scales)
                     : CheckPacked(w, parts, values, scales);
}

void ReadWeightRow(const TensorView& w, int64_t matrix, int64_t row, float* out) {
  const int64_t k = w.shape[static_cast<size_t>(w.rank - 1)];
  if (w.parts == nullptr) {
    const uint8_t* data = w.rank == 2 ? w.Row<const uint8_t>(row)
                                      : w.Row<const uint8_t>(matrix) + row * RowBytes(w.dtype, k);
    return IsConvertedFormat(w.dtype) ? DequantizeConverted(w.dtype, data, k, out)
                                      : DequantizeRow(w.dtype, data, k, out);
  }
  if (!IsScaled(w)) return PackedIntegers(w, matrix).ReadRow(row, out);
  const QuantizedFormat& format = w.parts->format;
  const uint8_t* values = PartOf(w, w.parts->values, matrix).Row<const uint8_t>(row);
  const float* scales =
      PartOf(w, w.parts->scales, matrix).Row<const float>(row / format.block_rows);
  for (int64_t i = 0; i < k; ++i) {
    const float value = w.dtype == DType::kI8 ? static_cast<float>(static_cast<int8_t>(values[i]))
                                              : F8E4M3ToFloat(values[i]);
    out[i] = value * scales[i / format.block_columns];
  }
}

}  // namespace pagemill::ops
