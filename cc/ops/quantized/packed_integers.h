// File: cc/ops/quantized/packed_integers.h
// Converts matrices of packed integers (all layouts of cc/tensor/quantized.h except `scaled`),
// and of the block formats of converted_blocks.h, to the formats that CPU kernels multiply, for a
// kernel's WeightPacking.
//
//   constexpr WeightPacking kRows = BlockRows(/*inputs=*/0b10);   // for kernels of GGUF rows
//   DType dtype = BlockDTypeOf(w);                                // q4_0, q4_1, q8_0 or bf16
//   ConvertedMatrix(w, /*matrix=*/0, dtype).WriteRows(0, 128, blocks.data());
//
//   integers                                        become
//   4 bits, no zero points                          q4_0
//   4 bits, zero points                             q4_1
//   8 bits, no zero points                          q8_0
//   8 bits, zero points; an index of groups         bf16
//   mxfp4, nvfp4                                    q8_0
//
// For kernels of slices (cc/ops/linear/packed_blocks.h), codes of mxfp4 and nvfp4 stay, in blocks
// of mxfp4 and of cc/ops/block_format/nibble_tables.h.
//
// The floats of mxfp4 are doubled to integers, and its scales halved. That is exact, like q8_0 with
// the scales that f16 holds, from 2^-24 to 2^15. A block of q8_0 has two groups of nvfp4: the scale
// is a tenth of the larger group's, whose integers are 10 times as large; those of the other group
// are rounded, by a 40th of the larger group's scale at most (a 20th of the step from 0 to 0.5).
// The scale itself is rounded to f16, as below, and so are both in blocks for slices.
//
// Errors: if scales are f16, q4_0 and q8_0 are exact, and so is the scale d of q4_1; its minimum m
// = -d * zero is rounded to the 11 bits of f16, since a zero point has 4 bits, by at most 2^-11 *
// 16 d = d / 128, equally for all elements of a group. That is also the largest error of a
// dequantization to f16, which rounds (q - zero) * scale of up to 15 d to 11 bits; the error of a
// dequantization to bf16 is 8 times as large, that of quantization itself d / 2. bf16 and f32
// scales become f16, with a relative error of at most 2^-11 or an absolute one of 2^-25 (bf16
// scales of 2^-17 or more are exact). A weight is refused if that could exceed 2^-8 of a matrix's
// largest scale. bf16 weights are scale * (q - zero), computed in f32 and rounded once.
#ifndef PAGEMILL_CC_OPS_QUANTIZED_PACKED_INTEGERS_H_
#define PAGEMILL_CC_OPS_QUANTIZED_PACKED_INTEGERS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "cc/base/status.h"
#include "cc/device/thread_pool.h"
#include "cc/ops/op.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::ops {

// Version of the packed bytes of packed integers, which identifies copies on disk.
inline constexpr std::string_view kPackedIntegersVersion = "packed integers 4";

// The first column, the columns of a row and, except in nvfp4, those of a group are multiples of
// this.
inline constexpr int64_t kPackedBlock = 32;
// Columns of a group of nvfp4.
inline constexpr int64_t kNvfp4Group = 16;

// The dtype to which a weight is converted if IsConverted(); the dtype of any other weight.
DType BlockDTypeOf(const TensorView& weight);
// The same for slices: blocks of codes stay such (SliceDType of converted_blocks.h).
DType SliceDTypeOf(const TensorView& weight);
// Bytes of a row of `columns` elements of such a dtype.
int64_t ConvertedRowBytes(DType dtype, int64_t columns);

// The converted weight: consecutive rows of BlockDTypeOf(), without parts. Each matrix of a stack
// begins at a multiple of 64 bytes.
TensorView AsBlocks(const TensorView& weight);

// A matrix of a weight of packed integers. Holds views of its parts.
class PackedIntegers {
 public:
  // Rows that are worth converting together: a cache line of AWQ's words.
  static constexpr int64_t kTileRows = 128;

  // `matrix` is 0 unless the weight is a stack.
  PackedIntegers(const TensorView& weight, int64_t matrix);

  // kDataLoss if an index is not that of a group, or a scale is not finite.
  Status CheckNumbers() const;
  // kUnimplemented if `dtype` does not hold the scales well enough. Also runs CheckNumbers().
  Status CheckBlocks(DType dtype) const;

  // Reads row `row` as floats.
  void ReadRow(int64_t row, float* out) const;
  // Writes rows [begin, end), at most kTileRows, as consecutive rows of `dtype` to `out`. Takes 0.5
  // to 0.8 ns per element.
  void WriteRows(DType dtype, int64_t begin, int64_t end, uint8_t* out) const;

 private:
  struct Tile;

  uint32_t Integer(uint32_t word, int64_t place) const;
  int64_t Group(int64_t column) const;
  float Scale(int64_t row, int64_t group) const;
  int32_t Zero(int64_t row, int64_t group) const;
  int32_t ValueAt(int64_t row, int64_t column) const;
  void Unpack(int64_t row, int64_t count, int64_t column, Tile* tile) const;
  void WriteBf16(int64_t row, int64_t column, const uint8_t* integers, uint8_t* out) const;
  void WriteMxfp4(DType dtype, int64_t row, int64_t column, const uint8_t* codes,
                  uint8_t* out) const;
  void WriteNvfp4(DType dtype, int64_t row, int64_t column, const uint8_t* codes,
                  uint8_t* out) const;

  QuantizedFormat format_;
  int64_t bits_;
  int64_t words_;      // integers in a word
  int64_t columns_;    // of the weight
  PackedShape shape_;  // of the checkpoint's matrix
  TensorView values_, scales_, zeros_, groups_;
  float factor_ = 1;
};

// A matrix of a weight that is converted, of either kind. Holds views of it.
class ConvertedMatrix {
 public:
  static constexpr int64_t kTileRows = PackedIntegers::kTileRows;

  // `dtype` is BlockDTypeOf() or SliceDTypeOf().
  ConvertedMatrix(const TensorView& weight, int64_t matrix, DType dtype);

  // The errors of PackedIntegers::CheckBlocks() and CheckConvertible().
  Status Check() const;
  // Writes rows [begin, end), at most kTileRows, as consecutive rows of the dtype to `out`.
  void WriteRows(int64_t begin, int64_t end, uint8_t* out) const;

 private:
  TensorView rows_;  // [M, K] of a block format
  DType dtype_;
  std::optional<PackedIntegers> integers_;
};

// The functions of BlockRows().
int64_t BlockRowsBytes(const TensorView& weight);
Status PackBlockRows(const TensorView& weight, std::byte* packed, device::ThreadPool& pool);

// Packing for kernels that read block formats and bf16 as stored: AsBlocks().
constexpr WeightPacking BlockRows(uint32_t inputs) {
  return {.layout = "rows of blocks, version 1",
          .inputs = inputs,
          .bytes = BlockRowsBytes,
          .pack = PackBlockRows,
          .view = AsBlocks};
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_QUANTIZED_PACKED_INTEGERS_H_
