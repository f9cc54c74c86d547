// File: cc/ops/quantized/packed_integers.h
// Matrices of packed integers (AWQ, GPTQ, pack_quantized: cc/tensor/quantized.h) as the formats
// that kernels of the CPU multiply: what of them a kernel's WeightPacking makes.
//
//   constexpr WeightPacking kRows = BlockRows(/*inputs=*/0b10);   // kernels of rows as GGUF has
//   them DType dtype = BlockDTypeOf(w);                                // q4_0, q4_1, q8_0 or bf16
//
//   integers                                        become
//   4 bits, no zero points                          q4_0
//   4 bits, zero points                             q4_1
//   8 bits, no zero points                          q8_0
//   8 bits, zero points; an index of groups         bf16
//
// What is exact: q4_0, q8_0 and both numbers of q4_1 if scales are f16, except the minimum of
// q4_1, d = scale, m = -d * zero: a zero point has 4 bits, so m is rounded to the 11 bits of f16,
// by 2^-11 * 16 d = d / 128 or less, the same for all elements of a group. That is the worst error
// of a dequantization to f16 too, (q - zero) * scale of up to 15 d rounded to 11 bits; a bf16 one
// is off by 8 times as much, and quantization itself by d / 2. bf16 and f32 scales become f16: off
// by at most 2^-11 of themselves or 2^-25 (bf16 ones of 2^-17 or more, by nothing). Refused if
// that could be more than 2^-8 of a matrix's largest scale. bf16 weights are scale * (q - zero),
// computed in f32 and rounded once.
#ifndef PAGEMILL_CC_OPS_QUANTIZED_PACKED_INTEGERS_H_
#define PAGEMILL_CC_OPS_QUANTIZED_PACKED_INTEGERS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cc/base/status.h"
#include "cc/device/thread_pool.h"
#include "cc/ops/op.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::ops {

// Of the bytes that packing makes of packed integers: copies on disk are found by it.
inline constexpr std::string_view kPackedIntegersVersion = "packed integers 2";

// Columns of a first column, a group and a row come in multiples of it.
inline constexpr int64_t kPackedBlock = 32;

// What packed integers become; the dtype of any other weight.
DType BlockDTypeOf(const TensorView& weight);

// The weight as if it were stored so: rows of BlockDTypeOf(), one after the other, without parts.
// Each matrix of a stack begins at a multiple of 64 bytes.
TensorView AsBlocks(const TensorView& weight);

// One matrix of a weight of packed integers. Holds views of its parts.
class PackedIntegers {
 public:
  // Rows that are worth converting together: a cache line of AWQ's words.
  static constexpr int64_t kTileRows = 128;

  // `matrix` is 0 unless the weight is a stack.
  PackedIntegers(const TensorView& weight, int64_t matrix);

  // Does every index name a group, and is every scale a number? kDataLoss.
  Status CheckNumbers() const;
  // Does `dtype` hold the scales well enough? Also CheckNumbers(). kUnimplemented.
  Status CheckBlocks(DType dtype) const;

  // Row `row` in floats.
  void ReadRow(int64_t row, float* out) const;
  // Rows [begin, end), at most kTileRows, as rows of `dtype` at `out`, one after the other. 0.5 to
  // 0.8 ns an element.
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

  QuantizedFormat format_;
  int64_t bits_;
  int64_t words_;      // integers in a word
  int64_t columns_;    // of the weight
  PackedShape shape_;  // of the checkpoint's matrix
  TensorView values_, scales_, zeros_, groups_;
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
