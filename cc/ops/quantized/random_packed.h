// File: cc/ops/quantized/random_packed.h
// Random matrices of packed integers in every layout of checkpoints (cc/tensor/quantized.h), as
// operands of ops. Test code only.
//
//   for (const PackedKind& kind : kPackedKinds) {
//     const RandomPacked w(kind, kNoStack, /*rows=*/40, /*columns=*/96, random);
//     const TensorView inputs[] = {x.view(), w.view()};
//   }
#ifndef PAGEMILL_CC_OPS_QUANTIZED_RANDOM_PACKED_H_
#define PAGEMILL_CC_OPS_QUANTIZED_RANDOM_PACKED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/ops/conformance.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/tensor/float16.h"
#include "cc/tensor/float8.h"
#include "cc/tensor/quantized.h"

namespace pagemill::ops::conformance {

struct PackedKind {
  QuantizedLayout layout;
  DType dtype;       // u4 or u8
  int64_t group;     // columns
  bool has_zeros = false;
  bool has_groups = false;  // an index of the group of each column
  DType scales = DType::kF16;
};

inline constexpr PackedKind kPackedKinds[] = {
    {QuantizedLayout::kAwq, DType::kU4, 32, true},
    {QuantizedLayout::kAwq, DType::kU4, int64_t{1} << 31, false, false, DType::kBF16},
    {QuantizedLayout::kGptq, DType::kU4, 64, true},
    {QuantizedLayout::kGptq, DType::kU8, 32, true, true, DType::kF32},
    {QuantizedLayout::kGptqV2, DType::kU4, 96, true, true},
    {QuantizedLayout::kGptqV2, DType::kU8, 64, false},
    {QuantizedLayout::kPackQuantized, DType::kU4, 32, true, false, DType::kBF16},
    {QuantizedLayout::kPackQuantized, DType::kU8, 64, true, true},
    {QuantizedLayout::kPackQuantized, DType::kU4, 96, false, false, DType::kF32},
    {QuantizedLayout::kMxfp4, DType::kU4, 32, false, false, DType::kU8},
    {QuantizedLayout::kNvfp4, DType::kU4, 16, false, false, DType::kF8E4M3}};

inline std::string NameOf(const PackedKind& kind) {
  return std::string(pagemill::NameOf(kind.layout)) + " " + std::string(Info(kind.dtype).name) +
         (kind.has_zeros ? " with zeros" : "") + (kind.has_groups ? " with groups" : "");
}

inline constexpr int64_t kNoStack = 0;

// A matrix, or a stack of them. `rows` is a multiple of 8, `columns` one of 32.
class RandomPacked {
 public:
  RandomPacked(const PackedKind& kind, int64_t matrices, int64_t rows, int64_t columns,
               Random& random) {
    const int64_t in_word = kind.dtype == DType::kU4 ? 8 : 4;
    const int64_t groups = (columns + kind.group - 1) / kind.group;
    const bool is_awq = kind.layout == QuantizedLayout::kAwq;
    parts_.format = {.layout = kind.layout, .block_columns = kind.group};
    const bool by_rows = IsByRows(parts_.format);
    parts_.values = is_awq    ? Words(matrices, columns, rows / in_word, random)
                    : by_rows ? Words(matrices, rows, columns / in_word, random)
                              : Words(matrices, columns / in_word, rows, random);
    parts_.scales = Scales(kind.scales, matrices, by_rows ? rows : groups,
                           by_rows ? groups : rows, random);
    if (kind.has_zeros) {
      parts_.zeros = by_rows ? Words(matrices, (rows + in_word - 1) / in_word, groups, random)
                             : Words(matrices, groups, rows / in_word, random);
    }
    if (kind.has_groups) {
      parts_.groups = Add(DType::kI32, {columns}, matrices);
      for (int64_t i = 0; i < parts_.groups.Elements(); ++i) {
        parts_.groups.Data<int32_t>()[i] = static_cast<int32_t>(random.Int(0, groups - 1));
      }
    }
    if (kind.layout == QuantizedLayout::kNvfp4) {
      parts_.factor = Add(DType::kF32, {1}, matrices);
      for (int64_t i = 0; i < parts_.factor.Elements(); ++i) {
        parts_.factor.Data<float>()[i] = random.Uniform(0.001f, 0.01f);
      }
    }
    view_ = Shaped(parts_.values.data, kind.dtype, {rows, columns}, matrices);
    view_.parts = &parts_;
  }
  RandomPacked(const RandomPacked&) = delete;

  const TensorView& view() const { return view_; }

  // Rows and columns of each matrix from a place in it on. The view of the whole is no longer valid.
  TensorView PartFrom(int64_t row, int64_t column, int64_t rows, int64_t columns) {
    parts_.format.first_row = row;
    parts_.format.first_column = column;
    TensorView part = view_;
    part.shape[static_cast<size_t>(part.rank - 2)] = rows;
    part.shape[static_cast<size_t>(part.rank - 1)] = columns;
    return part;
  }

  // A stack of parts of the single matrix, of `rows` rows each, which begin `step` rows apart.
  TensorView StackFrom(int64_t row, int64_t step, int64_t matrices, int64_t rows) {
    parts_.format.first_row = row;
    parts_.format.row_step = step;
    TensorView stack = Shaped(view_.data, view_.dtype, {rows, view_.shape[1]}, matrices);
    stack.parts = &parts_;
    return stack;
  }

 private:
  using Shape = std::vector<int64_t>;

  static TensorView Shaped(void* data, DType dtype, const Shape& shape, int64_t matrices) {
    TensorView view;
    view.data = data;
    view.dtype = dtype;
    if (matrices != kNoStack) view.shape[static_cast<size_t>(view.rank++)] = matrices;
    for (const int64_t size : shape) view.shape[static_cast<size_t>(view.rank++)] = size;
    view.row_stride_bytes = RowBytes(dtype, view.RowElements());
    return view;
  }

  TensorView Add(DType dtype, const Shape& shape, int64_t matrices) {
    TensorView view = Shaped(nullptr, dtype, shape, matrices);
    memory_.emplace_back(static_cast<size_t>(view.shape[0] * view.row_stride_bytes + 3) / 4);
    view.data = memory_.back().data();
    return view;
  }

  TensorView Words(int64_t matrices, int64_t rows, int64_t columns, Random& random) {
    const TensorView view = Add(DType::kI32, {rows, columns}, matrices);
    for (int64_t i = 0; i < view.Elements(); ++i) {
      view.Data<uint32_t>()[i] = static_cast<uint32_t>(random.Next() >> 16);
    }
    return view;
  }

  TensorView Scales(DType dtype, int64_t matrices, int64_t rows, int64_t columns, Random& random) {
    const TensorView view = Add(dtype, {rows, columns}, matrices);
    for (int64_t i = 0; i < view.Elements(); ++i) {
      const float scale = random.Uniform(0.001f, 0.01f);
      if (dtype == DType::kU8) {
        view.Data<uint8_t>()[i] = static_cast<uint8_t>(random.Int(115, 122));
      } else if (dtype == DType::kF8E4M3) {
        view.Data<uint8_t>()[i] = FloatToF8E4M3(random.Uniform(0.1f, 4.0f));
      } else if (dtype == DType::kF32) {
        view.Data<float>()[i] = scale;
      } else {
        view.Data<uint16_t>()[i] = dtype == DType::kF16 ? FloatToF16(scale) : FloatToBf16(scale);
      }
    }
    return view;
  }

  std::vector<std::vector<uint32_t>> memory_;
  QuantizedParts parts_;
  TensorView view_;
};

}  // namespace pagemill::ops::conformance

#endif  // PAGEMILL_CC_OPS_QUANTIZED_RANDOM_PACKED_H_
