// File: sycl/ops/quantized_weights.h
// Elements of rows of quantized weights (cc/tensor/quantized.h): 8-bit values with scales of
// blocks, and packed integers. Values are those of ReadWeightRow() (cc/ops/quantized/quantized.h);
// an element whose group does not exist is NaN. Kernel text only, of sycl/ops/weights.h.
#ifndef PAGEMILL_SYCL_OPS_QUANTIZED_WEIGHTS_H_
#define PAGEMILL_SYCL_OPS_QUANTIZED_WEIGHTS_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/weight_matrices.h"

namespace pagemill::sycl {

class ScaledRow {
 public:
  ScaledRow(ElementType type, const void* data, const BlockScales& scales, int64_t matrix,
            int64_t row)
      : type_(type),
        data_(data),
        scales_(scales.data + matrix * scales.matrix_step +
                row / scales.block_rows * scales.row_step),
        block_columns_(scales.block_columns) {}

  float At(int64_t i) const {
    return LoadAs(type_, data_, i) * scales_[static_cast<int32_t>(i) / block_columns_];
  }

 private:
  const ElementType type_;
  const void* const data_;
  const float* const scales_;
  const int32_t block_columns_;
};

class PackedRow {
 public:
  PackedRow(ElementType type, const PackedIntegers& packed, int64_t matrix, int64_t row)
      : packed_(packed),
        bits_(type == ElementType::kU4 ? 4 : 8),
        row_(packed.first_row + matrix * packed.matrix_rows + row),
        matrix_(matrix) {}

  float At(int64_t i) const {
    const int32_t column = packed_.first_column + static_cast<int32_t>(i);
    int32_t group = column / packed_.group_columns;
    if (packed_.groups != nullptr) {
      group = packed_.groups[matrix_ * packed_.groups_matrix_step + column];
      if (group < 0 || group >= packed_.num_groups) return __builtin_nanf("");
    }
    const int32_t q = ValueAt(column);
    if (packed_.order == PackedOrder::kFp4) return Fp4(q) * ScaleOfFp4(group);
    return static_cast<float>(q - ZeroAt(group)) * ScaleAt(group);
  }

 private:
  int32_t InWord() const { return 32 / bits_; }
  int32_t Take(uint32_t word, int32_t place) const {
    return static_cast<int32_t>(word >> place * bits_ & ((1u << bits_) - 1));
  }
  // Where a row is in a word of 8.
  static int32_t AwqPlace(int32_t row) { return row % 2 * 4 + row / 2; }
  bool IsAwq() const { return packed_.order == PackedOrder::kAwqRows; }

  // `row` and `column` are those of the part's elements.
  int64_t Index(const PackedPart& part, int64_t row, int64_t column) const {
    return matrix_ * part.matrix_step + row * part.row_step + column * part.column_step;
  }

  int32_t ValueAt(int32_t column) const {
    const auto* words = static_cast<const uint32_t*>(packed_.values.data);
    if (IsAwq()) {
      return Take(words[Index(packed_.values, row_ / InWord(), column)],
                  AwqPlace(static_cast<int32_t>(row_ % InWord())));
    }
    return Take(words[Index(packed_.values, row_, column / InWord())], column % InWord());
  }
  int32_t ZeroAt(int32_t group) const {
    if (packed_.zeros.data == nullptr) return 1 << (bits_ - 1);
    const auto* words = static_cast<const uint32_t*>(packed_.zeros.data);
    const auto place = static_cast<int32_t>(row_ % InWord());
    const int32_t stored = Take(words[Index(packed_.zeros, row_ / InWord(), group)],
                                IsAwq() ? AwqPlace(place) : place);
    return (stored + packed_.zero_offset) & ((1 << bits_) - 1);
  }
  float ScaleAt(int32_t group) const {
    const int64_t i = Index(packed_.scales, row_, group);
    if (packed_.scale_type == ElementType::kF16) {
      return Load(static_cast<const F16*>(packed_.scales.data) + i);
    }
    return LoadAs(packed_.scale_type, packed_.scales.data, i);
  }

  float ScaleOfFp4(int32_t group) const {
    if (packed_.scale_type == ElementType::kU8) return ExponentAt(group);
    return ScaleAt(group) * packed_.factors[matrix_ * packed_.factors_matrix_step];
  }
  // 2^(s - 127), of a byte s; 255 is NaN.
  float ExponentAt(int32_t group) const {
    const uint32_t s =
        static_cast<const uint8_t*>(packed_.scales.data)[Index(packed_.scales, row_, group)];
    if (s == 255) return __builtin_nanf("");
    return ::sycl::bit_cast<float>(s == 0 ? 1u << 22 : s << 23);
  }
  // A sign, an exponent of 2 bits and a mantissa of 1.
  static float Fp4(int32_t q) {
    const int32_t exponent = q >> 1 & 3, mantissa = q & 1;
    const int32_t doubled = exponent == 0 ? mantissa : (2 + mantissa) << (exponent - 1);
    return 0.5f * static_cast<float>((q & 8) == 0 ? doubled : -doubled);
  }

  const PackedIntegers& packed_;
  const int32_t bits_;
  const int64_t row_;  // of the checkpoint's matrix
  const int64_t matrix_;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_QUANTIZED_WEIGHTS_H_
