#include "cc/ops/linear/packed_blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "cc/ops/block_format/block_format.h"
#include "cc/ops/block_format/block_layout.h"
#include "cc/ops/block_format/nibble_tables.h"
#include "cc/ops/conformance.h"
#include "cc/ops/quantized/converted_blocks.h"
#include "cc/tensor/float16.h"

namespace pagemill::ops::linear {
namespace {

using conformance::Random;
using conformance::TestTensor;

float F16(const uint8_t* bytes) { return F16ToFloat(LoadLe16(bytes)); }

// Element `i` of `row` in a record, as the header describes it.
float ReadElement(DType dtype, const uint8_t* head, const uint8_t* record, int64_t row, int i) {
  const PackedBlockLayout layout = PackedBlockLayoutOf(dtype);
  const int64_t half = row / kHalfSliceRows;
  const int quad = i / 4;
  const int64_t byte = row % kHalfSliceRows * 4 + i % 4;
  int value = 0;
  if (dtype == DType::kQ8_0) {
    value = record[(half * 8 + quad) * 64 + byte];
  } else {
    value = record[(half * 4 + quad % 4) * 64 + byte] >> (quad < 4 ? 0 : 4) & 15;
  }
  const uint8_t* high = record + layout.high_bits;
  if (dtype == DType::kQ5_0 || dtype == DType::kQ5_K) {
    value |= (high[half * 64 + byte] >> quad & 1) << 4;
  } else if (dtype == DType::kQ6_K) {
    value |= (high[(half * 2 + quad / 4) * 64 + byte] >> (2 * (quad % 4)) & 3) << 4;
  }
  float scale = 0;
  float minimum = 0;
  if (dtype == DType::kQ6_K) {
    const int8_t of_half =
        static_cast<int8_t>(record[layout.scales + (i < 16 ? 0 : kSliceRows) + row]);
    scale = F16(head + 2 * row) * of_half;
  } else if (layout.head_bytes != 0) {
    scale = F16(head + 2 * row) * record[layout.scales + row];
    minimum = F16(head + 64 + 2 * row) * record[layout.minima + row];
  } else {
    scale = F16(record + layout.scales + 2 * row);
    if (layout.minima != 0) minimum = F16(record + layout.minima + 2 * row);
  }
  return scale * static_cast<float>(value - layout.zero_point) + minimum;
}

std::vector<float> ReadRow(DType dtype, const uint8_t* slice, int64_t row, int64_t k) {
  const PackedBlockLayout layout = PackedBlockLayoutOf(dtype);
  std::vector<float> values;
  const uint8_t* head = slice;
  const uint8_t* record = slice;
  for (int64_t b = 0; b < k / kRecordElements; ++b, record += layout.record_bytes) {
    if (layout.head_bytes != 0 && b % kRecordsPerHead == 0) {
      head = record;
      record += layout.head_bytes;
    }
    for (int i = 0; i < kRecordElements; ++i) {
      values.push_back(ReadElement(dtype, head, record, row, i));
    }
  }
  EXPECT_EQ(record - slice, BlockSliceBytes(dtype, k));
  return values;
}

// Compares bits, except that sums of a product and a minimum may differ in the sign of zero.
void ExpectSame(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_EQ(actual[i], expected[i]) << "element " << i;
}

TEST(BlockSlice, HoldsTheWeightsOfEveryFormat) {
  Random random(1);
  for (DType dtype : kWeightDTypes) {
    if (!IsBlockFormat(dtype)) continue;
    for (int64_t rows : {1, 15, 17, 32}) {
      SCOPED_TRACE(std::string(Info(dtype).name) + " rows=" + std::to_string(rows));
      const int64_t k = 512;
      TestTensor w(dtype, {rows, k}, {.misalign_bytes = 2});
      w.FillUniform(random, -2, 2);
      const TensorView view = w.view();
      std::vector<uint8_t> slice(BlockSliceBytes(dtype, k), 0xff);
      PackBlockSlice({dtype, view.Row<uint8_t>(0), view.row_stride_bytes, k}, rows, slice.data());
      for (int64_t row = 0; row < kSliceRows; ++row) {
        std::vector<float> expected(k, 0.0f);
        if (row < rows) DequantizeRow(dtype, view.Row<uint8_t>(row), k, expected.data());
        ExpectSame(ReadRow(dtype, slice.data(), row, k), expected);
        std::vector<float> read(k);
        ReadPackedBlockRow(dtype, slice.data(), row, k, read.data());
        ExpectSame(read, expected);
      }
    }
  }
}

// Codes of 4 bits with scales of all sizes that their formats have.
TEST(BlockSlice, HoldsCodes) {
  Random random(2);
  for (DType dtype : {DType::kIQ4_NL, DType::kMxfp4}) {
    SCOPED_TRACE(Info(dtype).name);
    constexpr int64_t kRows = 29, kElements = 32 * 9;
    const int64_t stride = RowBytes(dtype, kElements);
    std::vector<uint8_t> rows(static_cast<size_t>(kRows * stride));
    int next = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const bool begins = i % static_cast<size_t>(Info(dtype).block_bytes) == 0;
      // f16: finite ones of either sign; bytes: all but 255, which stands for none.
      rows[i] = static_cast<uint8_t>(begins && dtype == DType::kMxfp4 ? next++ % 255
                                                                      : random.Int(0, 0xfb));
      if (dtype == DType::kIQ4_NL && i % 18 == 1) rows[i] &= 0xbb;
    }
    std::vector<uint8_t> slice(BlockSliceBytes(dtype, kElements), 0xff);
    PackBlockSlice({dtype, rows.data(), stride, kElements}, kRows, slice.data());
    for (int64_t row = 0; row < kSliceRows; ++row) {
      std::vector<float> expected(kElements, 0.0f), read(kElements);
      if (row < kRows) {
        DequantizeConverted(dtype, rows.data() + row * stride, kElements, expected.data());
      }
      ReadPackedBlockRow(dtype, slice.data(), row, kElements, read.data());
      ExpectSame(read, expected);
    }
  }
}

TEST(BlockSlice, HoldsBlocksOf3Bits) {
  Random random(4);
  constexpr int64_t kRows = 29, kElements = 512;
  TestTensor w(DType::kQ3_K, {kRows, kElements}, {.misalign_bytes = 2});
  w.FillUniform(random, -2, 2);
  const TensorView view = w.view();
  std::vector<uint8_t> slice(BlockSliceBytes(DType::kQ3_K, kElements), 0xff);
  PackBlockSlice({DType::kQ3_K, view.Row<uint8_t>(0), view.row_stride_bytes, kElements}, kRows,
                 slice.data());
  for (int64_t row = 0; row < kSliceRows; ++row) {
    std::vector<float> expected(kElements, 0.0f), read(kElements);
    if (row < kRows) {
      DequantizeConverted(DType::kQ3_K, view.Row<uint8_t>(row), kElements, expected.data());
    }
    ReadPackedBlockRow(DType::kQ3_K, slice.data(), row, kElements, read.data());
    ExpectSame(read, expected);
  }
}

TEST(BlockSlice, HoldsCodesWithTwoScales) {
  Random random(3);
  constexpr int64_t kRows = 29, kBlocks = 9, kStride = kBlocks * kNvfp4BlockBytes;
  std::vector<uint8_t> rows(kRows * kStride);
  for (uint8_t& byte : rows) byte = static_cast<uint8_t>(random.Int(0, 255));
  for (size_t at = 0; at < rows.size(); at += kNvfp4BlockBytes) {
    for (size_t i : {0, 2}) StoreLe16(&rows[at + i], FloatToF16(random.Uniform(-2, 2)));
  }
  constexpr int64_t kElements = kBlocks * kNvfp4BlockElements;
  std::vector<uint8_t> slice(BlockSliceBytes(kNvfp4Blocks, kElements), 0xff);
  PackBlockSlice({kNvfp4Blocks, rows.data(), kStride, kElements}, kRows, slice.data());
  for (int64_t row = 0; row < kSliceRows; ++row) {
    std::vector<float> expected(kElements, 0.0f), read(kElements);
    for (int64_t k = 0; row < kRows && k < kElements; ++k) {
      const uint8_t* block = &rows[row * kStride + k / 32 * kNvfp4BlockBytes];
      const int code = block[4 + k % 16] >> (k % 32 < 16 ? 0 : 4) & 15;
      expected[k] = F16(block + (k % 32 < 16 ? 0 : 2)) * kE2m1Doubled[code];
    }
    ReadPackedBlockRow(kNvfp4Blocks, slice.data(), row, kElements, read.data());
    ExpectSame(read, expected);
  }
}

// Slices take as many bytes as the blocks, except for 6-bit scales, which become bytes, and for a
// byte of scale, which becomes two; registers are aligned.
TEST(BlockSlice, IsAsSmallAsTheBlocks) {
  for (DType dtype : kWeightDTypes) {
    if (!IsBlockFormat(dtype)) continue;
    const int64_t stored = kSliceRows * RowBytes(dtype, 768);
    const bool has_short_scales = dtype == DType::kQ4_K || dtype == DType::kQ5_K;
    EXPECT_EQ(BlockSliceBytes(dtype, 768), stored + (has_short_scales ? kSliceRows * 3 * 4 : 0))
        << Info(dtype).name;
    const PackedBlockLayout layout = PackedBlockLayoutOf(dtype);
    EXPECT_EQ(layout.head_bytes % 64, 0);
    EXPECT_EQ(layout.record_bytes % 64, 0);
  }
  EXPECT_EQ(BlockSliceBytes(DType::kIQ4_NL, 768), kSliceRows * RowBytes(DType::kIQ4_NL, 768));
  EXPECT_EQ(BlockSliceBytes(DType::kMxfp4, 768), kSliceRows * (RowBytes(DType::kMxfp4, 768) + 24));
  // 12 bytes of scales become 16.
  EXPECT_EQ(BlockSliceBytes(DType::kQ3_K, 768), kSliceRows * (RowBytes(DType::kQ3_K, 768) + 3 * 4));
  EXPECT_EQ(BlockSliceBytes(kNvfp4Blocks, 768), kSliceRows * 24 * kNvfp4BlockBytes);
}

}  // namespace
}  // namespace pagemill::ops::linear
