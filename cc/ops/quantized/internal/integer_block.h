// File: cc/ops/quantized/internal/integer_block.h
// A block of a GGUF format that is converted, as integers with scales; and its readers.
#ifndef PAGEMILL_CC_OPS_QUANTIZED_INTERNAL_INTEGER_BLOCK_H_
#define PAGEMILL_CC_OPS_QUANTIZED_INTERNAL_INTEGER_BLOCK_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "cc/ops/block_format/block_layout.h"
#include "cc/tensor/float16.h"

namespace pagemill::ops::internal {

inline constexpr int kBlockElements = 256;  // at most
inline constexpr int kSubBlock = 16;

// Element i is d * scales[s] * q[i] - dmin * minima[s], s = i / kSubBlock.
struct IntegerBlock {
  float d = 0;
  float dmin = 0;
  std::array<int8_t, kBlockElements> q = {};
  std::array<int8_t, kBlockElements / kSubBlock> scales = {};
  std::array<int8_t, kBlockElements / kSubBlock> minima = {};

  float Scale(int64_t element) const {
    return d * static_cast<float>(scales[static_cast<size_t>(element / kSubBlock)]);
  }
  float Value(int64_t element) const {
    const auto s = static_cast<size_t>(element / kSubBlock);
    const float product = Scale(element) * static_cast<float>(q[static_cast<size_t>(element)]);
    return product - dmin * static_cast<float>(minima[s]);
  }
};

inline float LoadF16(const uint8_t* from) { return F16ToFloat(LoadLe16(from)); }

// Readers of all of a block but d.
void LoadQ5_1(const uint8_t* block, IntegerBlock* out);
void LoadQ2K(const uint8_t* block, IntegerBlock* out);
void LoadQ3K(const uint8_t* block, IntegerBlock* out);
void LoadIq4Nl(const uint8_t* block, IntegerBlock* out);
void LoadIq4Xs(const uint8_t* block, IntegerBlock* out);
void LoadMxfp4(const uint8_t* block, IntegerBlock* out);
void LoadTq1(const uint8_t* block, IntegerBlock* out);
void LoadTq2(const uint8_t* block, IntegerBlock* out);

// Formats whose elements are coordinates of points of a table (point_blocks.cc).
void LoadIq1S(const uint8_t* block, IntegerBlock* out);
void LoadIq1M(const uint8_t* block, IntegerBlock* out);
void LoadIq2Xxs(const uint8_t* block, IntegerBlock* out);
void LoadIq2Xs(const uint8_t* block, IntegerBlock* out);
void LoadIq2S(const uint8_t* block, IntegerBlock* out);
void LoadIq3Xxs(const uint8_t* block, IntegerBlock* out);
void LoadIq3S(const uint8_t* block, IntegerBlock* out);

}  // namespace pagemill::ops::internal

#endif  // PAGEMILL_CC_OPS_QUANTIZED_INTERNAL_INTEGER_BLOCK_H_
