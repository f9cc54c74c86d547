// File: cc/ops/linear/packed_blocks.h
// Slices of block-format weights: 32 rows stored such that one 64-byte register holds 4 consecutive
// elements of each of 16 rows, the operand of instructions that add byte products in groups of
// four. Slices take as many bytes as the blocks (Q3_K, Q4_K and Q5_K 2 to 4 % more: their 6-bit
// scales become bytes; MXFP4 6 % and NVFP4 11 % more: a byte of scale becomes two).
//
// A slice is one record for each 32 elements of k, ascending, and, for formats with blocks of 256,
// a head before every 8 records. Fields are indexed by row 0..31; "half" h is rows 16 h .. 16 h +
// 15. Element i of a block is in quad i / 4.
//
//   head     f16 d[32]; with a minimum: f16 -dmin[32]
//   record   values of the two halves:
//              8 bits: 8 registers a half; register q holds quad q
//              fewer:  4 registers a half; register q holds quad q in the low nibbles and quad
//                      q + 4 in the high ones
//              Q3_K:   2 registers a half; bits 2 (q % 4) of register q / 4 hold quad q
//            bits above those: one register a half, bit q of a byte belonging to quad q (Q3_K,
//              Q5_0, Q5_K), or two, bits 2 (q % 4) of register q / 4 (Q6_K)
//            scales: f16[32]; MXFP4: bf16[32]; NVFP4: f16[32] of elements 0..15 and f16[32] of
//              elements 16..31; Q4_K, Q5_K: u8[32], to be multiplied with d; Q3_K, Q6_K: int8[32]
//              of elements 0..15 and int8[32] of elements 16..31, to be multiplied with d
//            minima: f16[32]; Q4_K, Q5_K: u8[32], to be multiplied with -dmin
//
// Values are unsigned, with a zero point: w = scale * (value - zero_point) + minimum. Nibbles of
// IQ4_NL, MXFP4 and NVFP4 (kNvfp4Blocks) are codes, for which TableOf() has value - zero_point.
#ifndef PAGEMILL_CC_OPS_LINEAR_PACKED_BLOCKS_H_
#define PAGEMILL_CC_OPS_LINEAR_PACKED_BLOCKS_H_

#include <cstdint>
#include <string_view>

#include "cc/ops/block_format/block_layout.h"
#include "cc/ops/block_format/nibble_tables.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/tensor/dtype.h"

namespace pagemill::ops::linear {

inline constexpr std::string_view kPackedBlocksLayout = "blocks in slices of 32 rows, version 3";
inline constexpr int64_t kRecordElements = 32;  // elements of k in a record
inline constexpr int64_t kRecordsPerHead = 8;   // of formats with blocks of 256
inline constexpr int64_t kHalfSliceRows = 16;
inline constexpr int kQuads = 8;

// Offsets of the fields of a record in bytes; 0 if the format does not have the field.
struct PackedBlockLayout {
  int64_t head_bytes;
  int64_t record_bytes;
  int64_t high_bits;  // fields of half h follow at h * 64 times the number of its registers
  int64_t scales;
  int64_t minima;
  int32_t zero_point;
};

constexpr PackedBlockLayout PackedBlockLayoutOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return {0, 576, 0, 512, 0, 8};
    case DType::kQ4_1:
      return {0, 640, 0, 512, 576, 0};
    case DType::kQ5_0:
      return {0, 704, 512, 640, 0, 16};
    case DType::kQ8_0:
      return {0, 1088, 0, 1024, 0, 128};
    case DType::kQ3_K:
      return {64, 448, 256, 384, 0, 4};
    case DType::kQ4_K:
      return {128, 576, 0, 512, 544, 0};
    case DType::kQ5_K:
      return {128, 704, 512, 640, 672, 0};
    case DType::kQ6_K:
      return {64, 832, 512, 768, 0, 32};
    case DType::kIQ4_NL:
      return {0, 576, 0, 512, 0, 127};
    case DType::kMxfp4:
      return {0, 576, 0, 512, 0, 12};
    case kNvfp4Blocks:
      return {0, 640, 0, 512, 0, 12};
    default:
      return {};
  }
}

// True if each half of a record has a scale, an int8 to be multiplied with d.
constexpr bool HasHalfScales(DType dtype) { return dtype == DType::kQ3_K || dtype == DType::kQ6_K; }

// Null if nibbles are values.
constexpr const NibbleTable* TableOf(DType dtype) {
  if (dtype == DType::kIQ4_NL) return &kNonlinearNibbles;
  if (dtype == DType::kMxfp4 || dtype == kNvfp4Blocks) return &kE2m1Doubled;
  return nullptr;
}

// Calls f.template operator()<dtype>() if slices have such weights: the block formats, codes and
// Q3_K.
template <class F>
[[gnu::always_inline]] inline void WithSliceFormat(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kQ3_K:
      return f.template operator()<DType::kQ3_K>();
    case DType::kIQ4_NL:
      return f.template operator()<DType::kIQ4_NL>();
    case DType::kMxfp4:
      return f.template operator()<DType::kMxfp4>();
    case kNvfp4Blocks:
      return f.template operator()<kNvfp4Blocks>();
    default:
      return WithBlockFormat(dtype, f);
  }
}

// Returns a multiple of 64; k is a multiple of the format's block.
int64_t BlockSliceBytes(DType dtype, int64_t k);

// See PackedGemm::pack. Runs on any CPU and gives the same bytes on all.
void PackBlockSlice(const StoredRows& source, int64_t count, uint8_t* slice);

// Reads row `row` of a slice as floats, with the bits of DequantizeRow (cc/ops/block_format), of
// codes and Q3_K of DequantizeConverted (cc/ops/quantized). Takes 0.9 ns per element, eight times
// as long as DequantizeRow: for the few rows of an embedding.
void ReadPackedBlockRow(DType dtype, const uint8_t* slice, int64_t row, int64_t k, float* out);

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_PACKED_BLOCKS_H_
