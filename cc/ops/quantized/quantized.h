// File: cc/ops/quantized/quantized.h
// Quantized weights (cc/tensor/quantized.h) for ops: checks the shapes of their parts and reads
// rows as floats.
//
//   PAGEMILL_RETURN_IF_ERROR(CheckQuantized(w));
//   ReadWeightRow(w, /*matrix=*/0, /*row=*/7, row.data());
//
// Thread safety: pure functions.
#ifndef PAGEMILL_CC_OPS_QUANTIZED_QUANTIZED_H_
#define PAGEMILL_CC_OPS_QUANTIZED_QUANTIZED_H_

#include <cstdint>

#include "cc/base/status.h"
#include "cc/ops/op.h"
#include "cc/tensor/quantized.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::ops {

// True if the weight is a quantized one of this kind.
inline bool IsScaled(const TensorView& w) {
  return w.parts != nullptr && w.parts->format.layout == QuantizedLayout::kScaled;
}
inline bool HasPackedIntegers(const TensorView& w) { return w.parts != nullptr && !IsScaled(w); }
// True if kernels multiply a copy in another format (packed_integers.h).
inline bool IsConverted(const TensorView& w) {
  return HasPackedIntegers(w) || IsConvertedFormat(w.dtype);
}

// The coarsest precision of activations that products with the weight may have by default.
inline Precision AutomaticPrecision(const TensorView& w) {
  if (!IsScaled(w) || !w.parts->format.quantized_activations) return Precision::kMixedBlock;
  return w.dtype == DType::kI8 ? Precision::kInt8Block : Precision::kF8;
}

// True if values are floats of 4 bits.
constexpr bool HasFp4(const QuantizedFormat& format) {
  return format.layout == QuantizedLayout::kMxfp4 || format.layout == QuantizedLayout::kNvfp4;
}

// True if a word of values holds columns of one row, and scales lie row by row.
constexpr bool IsByRows(const QuantizedFormat& format) {
  return format.layout == QuantizedLayout::kPackQuantized || HasFp4(format);
}

// The size of the checkpoint's matrix of packed integers, from the shape of its words.
struct PackedShape {
  int64_t rows = 0;     // N
  int64_t columns = 0;  // K
  int64_t groups = 0;   // G
};
// `values` are those of one matrix.
PackedShape PackedShapeOf(const QuantizedFormat& format, DType dtype, const TensorView& values);

// The part of matrix `matrix` of `weight`, which may be a stack: [..] instead of [E, ..].
TensorView PartOf(const TensorView& weight, const TensorView& part, int64_t matrix);

// Matrix `matrix` of a stack as a separate weight, [M, K]. view() points into this object, which
// must not move or outlive the stack's parts.
class MatrixOfStack {
 public:
  MatrixOfStack(const TensorView& stack, int64_t matrix);
  MatrixOfStack(const MatrixOfStack&) = delete;
  MatrixOfStack& operator=(const MatrixOfStack&) = delete;

  const TensorView& view() const { return view_; }

 private:
  QuantizedParts parts_;
  TensorView view_;
};

// Checks that the weight is a valid operand, [M, K] or a stack [E, M, K]. Without parts: a weight
// dtype and rows of whole blocks; with parts: consistent dtype, shape, format and parts. Reads no
// data. kInvalidArgument; the message completes "<op>: ".
Status CheckWeight(const TensorView& weight);

// Row `row` of matrix `matrix` (0 unless it is a stack) as floats, rounded once for each element.
// About 5 ns an element of packed integers. Groups are in range (CheckNumbers of
// packed_integers.h).
void ReadWeightRow(const TensorView& weight, int64_t matrix, int64_t row, float* out);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_QUANTIZED_QUANTIZED_H_
