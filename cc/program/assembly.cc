#include "cc/program/assembly.h"

#include <array>
#include <string>

namespace pagemill::program {
namespace {

constexpr int64_t kMaxGroup = int64_t{1} << 31;
constexpr std::array<std::string_view, 4> kNames = {"awq", "gptq", "gptq_v2", "pack_quantized"};

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool HasShape(const Value& part, int64_t rows, int64_t columns) {
  return part.shape.rank == 2 && part.shape.dims[0] == rows && part.shape.dims[1] == columns;
}

bool IsDType(const Assembly& a, DType dtype) {
  const bool plain = a.groups == kNoValue;
  switch (dtype) {
    case DType::kQ4_0:
      return plain && a.bits == 4 && a.zeros == kNoValue;
    case DType::kQ4_1:
      return plain && a.bits == 4 && a.zeros != kNoValue;
    case DType::kQ8_0:
      return plain && a.bits == 8 && a.zeros == kNoValue;
    default:
      return dtype == DType::kBF16;
  }
}

// Parts are weights that lie in a file, whole.
bool IsPart(const Program& program, ValueId id) {
  if (id.value() < 0 || static_cast<size_t>(id.value()) >= program.values().size()) return false;
  const Value& part = program.value(id);
  return part.kind == ValueKind::kWeight && !part.IsMade() && part.weight.row_stride == 0;
}

Status CheckParts(const Program& program, const Value& weight, const std::string& prefix) {
  const Assembly& a = *weight.assembly;
  for (ValueId id : a.parts()) {
    if (IsPart(program, id) || (id == kNoValue && id != a.values && id != a.scales)) continue;
    return InvalidArgument(prefix +
                           "needs values and scales that are weights of a file, as zeros "
                           "and groups are where it has them");
  }
  const Value& values = program.value(a.values);
  if (values.dtype != DType::kI32 || values.shape.rank != 2) {
    return InvalidArgument(prefix + "needs values of i32 and two dimensions, got " +
                           std::string(Info(values.dtype).name) + " " + values.shape.ToString());
  }
  const bool by_rows = a.layout == PackedLayout::kPackQuantized;
  const PackedShape shape = PackedShapeOf(a, values.shape);
  const Value& scales = program.value(a.scales);
  const bool real =
      scales.dtype == DType::kF16 || scales.dtype == DType::kBF16 || scales.dtype == DType::kF32;
  if (!real ||
      !HasShape(scales, by_rows ? shape.rows : shape.groups, by_rows ? shape.groups : shape.rows)) {
    return InvalidArgument(prefix + "has scales of " + std::string(Info(scales.dtype).name) + " " +
                           scales.shape.ToString() + " for " + std::to_string(shape.rows) +
                           " rows and " + std::to_string(shape.groups) + " groups");
  }
  if (a.zeros != kNoValue) {
    const Value& zeros = program.value(a.zeros);
    const int64_t words = 32 / a.bits;
    const bool fits =
        by_rows ? HasShape(zeros, DivideUp(shape.rows, words), shape.groups)
                : shape.rows % words == 0 && HasShape(zeros, shape.groups, shape.rows / words);
    if (!fits || zeros.dtype != DType::kI32) {
      return InvalidArgument(prefix + "has zeros of " + std::string(Info(zeros.dtype).name) + " " +
                             zeros.shape.ToString() + " for " + std::to_string(shape.rows) +
                             " rows and " + std::to_string(shape.groups) + " groups");
    }
  }
  if (a.groups == kNoValue) return OkStatus();
  const Value& groups = program.value(a.groups);
  if (groups.dtype == DType::kI32 && groups.shape.rank == 1 &&
      groups.shape.dims[0] == shape.columns) {
    return OkStatus();
  }
  return InvalidArgument(prefix + "has groups of " + std::string(Info(groups.dtype).name) + " " +
                         groups.shape.ToString() + " for " + std::to_string(shape.columns) +
                         " columns");
}

}  // namespace

std::string_view NameOf(PackedLayout layout) { return kNames[static_cast<size_t>(layout)]; }

std::optional<PackedLayout> ParsePackedLayout(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<PackedLayout>(i);
  }
  return std::nullopt;
}

PackedShape PackedShapeOf(const Assembly& assembly, const Shape& values) {
  const int64_t words = 32 / assembly.bits;
  PackedShape shape;
  switch (assembly.layout) {
    case PackedLayout::kAwq:
      shape = {.rows = values.dims[1] * words, .columns = values.dims[0]};
      break;
    case PackedLayout::kGptq:
    case PackedLayout::kGptqV2:
      shape = {.rows = values.dims[1], .columns = values.dims[0] * words};
      break;
    case PackedLayout::kPackQuantized:
      shape = {.rows = values.dims[0], .columns = values.dims[1] * words};
      break;
  }
  shape.groups = DivideUp(shape.columns, assembly.group);
  return shape;
}

Status CheckAssembly(const Program& program, const Value& weight) {
  const Assembly& a = *weight.assembly;
  const std::string prefix = LinePrefix(weight.line) + "assembled '" + weight.name + "' ";
  if (a.bits != 4 && (a.bits != 8 || a.layout == PackedLayout::kAwq)) {
    return InvalidArgument(prefix + "has " + std::to_string(a.bits) + " bits; known: 4" +
                           (a.layout == PackedLayout::kAwq ? "" : ", 8"));
  }
  if (a.group < kAssemblyBlock || a.group > kMaxGroup || a.group % kAssemblyBlock != 0) {
    return InvalidArgument(prefix + "has groups of " + std::to_string(a.group) +
                           " columns, not a multiple of 32 up to 2^31");
  }
  if (weight.shape.rank != 2 || !IsDType(a, weight.dtype)) {
    return InvalidArgument(prefix + "cannot be " + std::string(Info(weight.dtype).name) + " " +
                           weight.shape.ToString() +
                           ": q4_0 has 4 bits and no zeros, q4_1 4 bits and zeros, q8_0 8 bits and "
                           "no zeros, all without groups; bf16 may have all");
  }
  PM_RETURN_IF_ERROR(CheckParts(program, weight, prefix));
  const PackedShape shape = PackedShapeOf(a, program.value(a.values).shape);
  const auto within = [](int64_t first, int64_t count, int64_t of) {
    return first >= 0 && count <= of && first <= of - count;
  };
  if (within(a.first_row, weight.shape.dims[0], shape.rows) &&
      within(a.first_column, weight.shape.dims[1], shape.columns) &&
      a.first_column % kAssemblyBlock == 0 && weight.shape.dims[1] % kAssemblyBlock == 0) {
    return OkStatus();
  }
  return InvalidArgument(prefix + "takes " + weight.shape.ToString() + " at row " +
                         std::to_string(a.first_row) + " and column " +
                         std::to_string(a.first_column) + " of a matrix of " +
                         std::to_string(shape.rows) + "," + std::to_string(shape.columns) +
                         "; columns come in multiples of 32");
}

}  // namespace pagemill::program
