// File: cc/ops/quantized/converted_blocks.h
// Block formats of GGUF files that no kernel multiplies as stored (IsConvertedFormat): reads them,
// and converts them to formats that kernels do multiply.
//
//   DequantizeConverted(DType::kQ3_K, row, 512, floats.data());
//   ConvertRow(DType::kQ3_K, DType::kQ6_K, row, 512, blocks.data());   // 512 elements
//
//   format            becomes
//   tq1_0, tq2_0      q4_0    exactly
//   iq1_s, iq2_xxs    q4_0    with rounded coordinates: by up to 1.6 % of the largest
//   iq1_m, q3_k       q6_k    exactly
//   iq2_xs, iq2_s     q6_k    with rounded coordinates: by up to 0.8 % of the largest
//   q2_k              q6_k    values are rounded: by up to 1 / 55 of the largest of 16
//   iq3_xxs           q4_k    with rounded coordinates: by up to 2.2 % of the largest
//   iq3_s             q4_k    minima are rounded to f16: by up to 2^-11 of the largest of 32
//   iq4_nl, mxfp4     q8_0    exactly (scales of mxfp4 below 2^-23 become 0)
//   iq4_xs            q8_0    scales are rounded to f16: a relative error of at most 2^-11, or an
//                             absolute one of 2^-25
//   q5_1              q8_0    values are rounded: by up to 1 / 253 of the largest of 32
//
// What is chosen is the smallest format whose rounding adds less than 2 % to the squared error that
// the first format has at least: 4^-bits of normally distributed weights. q5_1, whose steps are
// uniform, has six times that.
//
// Kernels of slices (cc/ops/linear/packed_blocks.h) look codes of 4 bits up in a table, so for them
// iq4_nl and mxfp4 stay as they are, and iq4_xs becomes iq4_nl, with the rounding above. q3_k
// stays, too: slices have 3 bits and a scale for 16 elements.
//
// A scale above 65504, which f16 does not hold, is refused; so is what may become one.
//
// Layouts: those of GGML, little endian on every CPU. Thread safety: pure functions.
#ifndef PAGEMILL_CC_OPS_QUANTIZED_CONVERTED_BLOCKS_H_
#define PAGEMILL_CC_OPS_QUANTIZED_CONVERTED_BLOCKS_H_

#include <cstdint>

#include "cc/base/status.h"
#include "cc/tensor/dtype.h"

namespace pagemill::ops {

// The format that `dtype`, a converted one, becomes: for kernels that read rows, and for those that
// read slices.
DType ConvertedDType(DType dtype);
DType SliceDType(DType dtype);

// Reads `elements` at `row`, a whole number of blocks, as floats: d * scale * q - dmin * minimum.
// Products are exact in f32 (11 bits of d, at most 6 of a scale and 7 of q), so results are rounded
// once, however they are compiled.
void DequantizeConverted(DType dtype, const uint8_t* row, int64_t elements, float* out);

// Writes `elements` of `to`, which is ConvertedDType() or SliceDType(), to `out`.
void ConvertRow(DType dtype, DType to, const uint8_t* row, int64_t elements, uint8_t* out);

// kUnimplemented if a scale of the row is outside of what `to` holds.
Status CheckConvertible(DType dtype, DType to, const uint8_t* row, int64_t elements);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_QUANTIZED_CONVERTED_BLOCKS_H_
