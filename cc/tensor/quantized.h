// File: cc/tensor/quantized.h
// Quantized matrices as stored in checkpoints: values of few bits and, in separate tensors, scales,
// zero points and the group of each column. One operand of an op has all of them.
//
//   const QuantizedParts parts = {.format = {.layout = QuantizedLayout::kAwq, .block_columns =
//   128},
//                                 .values = qweight, .scales = scales, .zeros = qzeros};
//   TensorView w = TensorView::Dense(qweight.data, DType::kU4, {rows, columns});
//   w.parts = &parts;
//
// Rows n are outputs, columns k inputs of a linear layer; a block has R rows and C columns:
//
//   scaled          w[n, k] = values[n, k] * scales[n / R, k / C]
//   the others      w[n, k] = scale[n, g] * (q[n, k] - zero[n, g]),   g = k / C, or groups[k]
//
// `scaled` has values i8 or f8_e4m3 [M, K] and scales f32 [ceil(M / R), ceil(K / C)]; C is a
// multiple of 4, or K and more. The others, packed integers, have R = 1 and, except nvfp4, C a
// multiple of 32.
// Their q and zero have 4 or 8 bits (dtype u4 or u8) and lie in i32 words, the first in the lowest
// bits. For a matrix of N rows, K columns and G groups, with P = 32 / bits:
//
//   layout          values        zeros             scales    a word holds
//   awq             [K, N / 8]    [G, N / 8]        [G, N]    8 rows: 0, 2, 4, 6, 1, 3, 5, 7
//   gptq, gptq_v2   [K / P, N]    [G, N / P]        [G, N]    P columns (zeros: P rows)
//   pack_quantized  [N, K / P]    [ceil(N / P), G]  [N, G]    P columns (zeros: P rows)
//   mxfp4, nvfp4    [N, K / 8]    none              [N, G]    8 columns
//
// gptq stores each zero minus one (0 as the largest integer), the others store it as it is; without
// zeros each is 2^(bits - 1). Scales are f16, bf16 or f32; groups i32 [K]. AWQ has 4 bits. awq is
// AutoAWQ's GEMM version, pack_quantized what compressed-tensors writes: integers there are signed
// and stored with 2^(bits - 1) added. A weight may be some rows and columns of such a matrix, which
// begin at first_row and first_column; its parts are those of the whole matrix.
//
// In mxfp4, the Open Compute Project's, and nvfp4, NVIDIA's, q is the code of a float of 4 bits (0,
// 0.5, 1, 1.5, 2, 3, 4, 6; 8 more is negative), and there are no zero points:
//
//   mxfp4           groups of 32 columns; a scale is a byte s, 2^(s - 127), and 255 is NaN
//   nvfp4           groups of 16 columns; a scale is f8_e4m3 times the matrix's factor, f32 [1]
//
// Parts of a stack of matrices have one more dimension, the first; or, with row_step > 0, matrix e
// of the stack is rows of one matrix of packed integers that begin at first_row + e * row_step.
#ifndef PAGEMILL_CC_TENSOR_QUANTIZED_H_
#define PAGEMILL_CC_TENSOR_QUANTIZED_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "cc/tensor/tensor_view.h"

namespace pagemill {

enum class QuantizedLayout : uint8_t {
  kScaled,
  kAwq,
  kGptq,
  kGptqV2,
  kPackQuantized,
  kMxfp4,
  kNvfp4,
};

inline constexpr std::array<std::string_view, 7> kQuantizedLayoutNames = {
    "scaled", "awq", "gptq", "gptq_v2", "pack_quantized", "mxfp4", "nvfp4"};

inline std::string_view NameOf(QuantizedLayout layout) {
  return kQuantizedLayoutNames[static_cast<size_t>(layout)];
}

inline std::optional<QuantizedLayout> ParseQuantizedLayout(std::string_view name) {
  for (size_t i = 0; i < kQuantizedLayoutNames.size(); ++i) {
    if (kQuantizedLayoutNames[i] == name) return static_cast<QuantizedLayout>(i);
  }
  return std::nullopt;
}

struct QuantizedFormat {
  QuantizedLayout layout = QuantizedLayout::kScaled;
  // Rows and columns that share a scale and a zero point.
  int64_t block_rows = 1;
  int64_t block_columns = 1;
  // The weights were made for activations of their own type, i8 or f8_e4m3: rounding activations
  // to it needs no further permission.
  bool quantized_activations = false;
  int64_t first_row = 0;
  int64_t first_column = 0;
  int64_t row_step = 0;
  friend bool operator==(const QuantizedFormat&, const QuantizedFormat&) = default;
};

struct QuantizedParts {
  QuantizedFormat format;
  TensorView values;
  TensorView scales;
  TensorView zeros;   // rank 0: every zero point is 2^(bits - 1), or there are none (`scaled`)
  TensorView groups;  // rank 0: groups follow each other
  TensorView factor = {};  // of nvfp4 alone

  // Each may have rank 0, except values and scales.
  std::array<TensorView*, 5> all() { return {&values, &scales, &zeros, &groups, &factor}; }
  std::array<const TensorView*, 5> all() const {
    return {&values, &scales, &zeros, &groups, &factor};
  }
};

// True if weights of the two formats are alike, regardless of their position in a larger matrix.
inline bool HaveOneFormat(QuantizedFormat a, const QuantizedFormat& b) {
  a.first_row = b.first_row;
  a.first_column = b.first_column;
  a.row_step = b.row_step;
  return a == b;
}

// True if the two weights have one dtype and format, so that one kernel can multiply both in one
// call. They may have any shape and may be parts of larger matrices.
inline bool HaveOneFormat(const TensorView& a, const TensorView& b) {
  if (a.dtype != b.dtype || (a.parts == nullptr) != (b.parts == nullptr)) return false;
  return a.parts == nullptr || (HaveOneFormat(a.parts->format, b.parts->format) &&
                                a.parts->zeros.rank == b.parts->zeros.rank &&
                                a.parts->groups.rank == b.parts->groups.rank);
}

}  // namespace pagemill

#endif  // PAGEMILL_CC_TENSOR_QUANTIZED_H_
