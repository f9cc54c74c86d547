// File: sycl/ops/weight_matrices.h
// Weights of an op as plain data: one matrix or a stack, as stored. Kernels read rows of it
// (sycl/ops/weights.h). Included by the host and by the source text of kernels.
//
//   if (!AreReadable(w)) ...                     // sycl/ops/launch.h
//   LinearParams{.w = WeightsOf(w), ...}
#ifndef PAGEMILL_SYCL_OPS_WEIGHT_MATRICES_H_
#define PAGEMILL_SYCL_OPS_WEIGHT_MATRICES_H_

#include <cstdint>

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

// Scales of 8-bit values: one for a block of rows and columns.
struct BlockScales {
  const float* data = nullptr;
  int64_t matrix_step = 0, row_step = 0;  // elements to the next matrix, row of blocks
  int32_t block_rows = 1, block_columns = 1;
};

// How integers that lie in words are stored (cc/tensor/quantized.h).
enum class PackedOrder : int32_t {
  kColumns,  // a word has columns of a row
  kAwqRows,  // a word has rows, in AWQ's order
  kFp4,      // a word has columns, which are floats of 4 bits
};

// Words of one row are row_step apart from those of the next, likewise for the words of a row or
// the groups of columns.
struct PackedPart {
  const void* data = nullptr;
  int64_t matrix_step = 0, row_step = 0, column_step = 0;  // elements
};

// Packed integers. Rows and columns are those of the checkpoint's matrix, of which the weights may
// be a part.
struct PackedIntegers {
  PackedOrder order = PackedOrder::kColumns;
  ElementType scale_type = ElementType::kF32;
  PackedPart values{};              // words
  PackedPart scales{};              // by row and group; kU8: exponents
  const float* factors = nullptr;   // of the scales of a matrix, of nvfp4 alone
  int64_t factors_matrix_step = 0;
  PackedPart zeros{};               // words of rows, by group; null: 2^(bits - 1)
  const int32_t* groups = nullptr;  // of columns; null: groups follow each other
  int64_t groups_matrix_step = 0;
  int64_t first_row = 0, matrix_rows = 0;  // of the first matrix, and from one to the next
  int32_t first_column = 0, group_columns = 1, num_groups = 0;
  int32_t zero_offset = 0;  // what is subtracted from stored zero points
};

struct WeightMatrices {
  // kI8 and kF8E4M3 have scales, kU4 and kU8 are packed integers.
  ElementType type = ElementType::kF32;
  Rows matrices{};        // without packed integers
  int64_t row_bytes = 0;  // from one row of a matrix to the next
  BlockScales scales{};
  PackedIntegers packed{};
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_WEIGHT_MATRICES_H_
