// File: cc/ops/block_format/block_format.h
// Converts weight rows of any dtype to floats: the portable dequantization of the embedding, the
// reference kernels and the portable kernels. Kernels for one instruction set decode blocks in
// registers instead (decoder_<isa>.h beside this file); all give the same bits (block_layout.h says
// why).
//
//   std::vector<float> row(576);
//   DequantizeRow(DType::kQ4_1, weights.Row<uint8_t>(7), 576, row.data());
//
// Byte order: block formats are little endian as in the GGUF file, on every CPU, so mapped files
// need no conversion. f32, bf16 and f16 are in the CPU's byte order, like every other plain tensor.
//
// Thread safety: pure functions. Cost: below 1 ns an element.
#ifndef PAGEMILL_CC_OPS_BLOCK_FORMAT_BLOCK_FORMAT_H_
#define PAGEMILL_CC_OPS_BLOCK_FORMAT_BLOCK_FORMAT_H_

#include <cstdint>

#include "cc/tensor/dtype.h"

namespace pagemill::ops {

// The dtypes of weight matrices.
inline constexpr DType kWeightDTypes[] = {DType::kF32,  DType::kBF16, DType::kF16,  DType::kQ4_0,
                                          DType::kQ4_1, DType::kQ5_0, DType::kQ8_0, DType::kQ4_K,
                                          DType::kQ5_K, DType::kQ6_K};
bool IsWeightDType(DType dtype);

// Converts `elements` consecutive elements at `row` (any alignment) to floats. `elements` is a
// multiple of the block size. Aborts if `dtype` is not a weight dtype.
void DequantizeRow(DType dtype, const uint8_t* row, int64_t elements, float* out);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_BLOCK_FORMAT_BLOCK_FORMAT_H_
