#include "cc/ops/quantized/converted_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "cc/ops/block_format/block_format.h"

namespace pagemill::ops {
namespace {

#include "cc/ops/block_format/golden_blocks.inc"

struct Golden {
  DType dtype;
  DType becomes;
  double error;             // of a converted value, relative to itself
  double error_of_largest;  // the same, relative to the largest of its 32 elements
  std::span<const uint8_t> blocks;
  std::span<const uint32_t> floats;  // their bits
};

const Golden kGolden[] = {
    {DType::kQ5_1, DType::kQ8_0, 0, 1.0 / 253, kQ5_1Blocks, kQ5_1Floats},
    {DType::kQ2_K, DType::kQ6_K, 0, 1.0 / 55, kQ2_KBlocks, kQ2_KFloats},
    {DType::kQ3_K, DType::kQ6_K, 0, 0, kQ3_KBlocks, kQ3_KFloats},
    {DType::kIQ4_NL, DType::kQ8_0, 0, 0, kIQ4_NLBlocks, kIQ4_NLFloats},
    {DType::kIQ4_XS, DType::kQ8_0, 0x1p-11, 0, kIQ4_XSBlocks, kIQ4_XSFloats},
    {DType::kMxfp4, DType::kQ8_0, 0, 0, kMXFP4Blocks, kMXFP4Floats},
    {DType::kTQ1_0, DType::kQ4_0, 0, 0, kTQ1_0Blocks, kTQ1_0Floats},
    {DType::kTQ2_0, DType::kQ4_0, 0, 0, kTQ2_0Blocks, kTQ2_0Floats},
    // -9, -1 and 7 become -8, -1 and 6 times 1.138; 8, 25 and 43 become 1, 3 and 5 times 8.469, or
    // 5, 16 and 27 times 1.584; 62 becomes 15 times 4.043.
    {DType::kIQ1_S, DType::kQ4_0, 0.139, 0, kIQ1_SBlocks, kIQ1_SFloats},
    {DType::kIQ1_M, DType::kQ6_K, 0, 0, kIQ1_MBlocks, kIQ1_MFloats},
    {DType::kIQ2_XXS, DType::kQ4_0, 0.0595, 0, kIQ2_XXSBlocks, kIQ2_XXSFloats},
    {DType::kIQ2_XS, DType::kQ6_K, 0.015, 0, kIQ2_XSBlocks, kIQ2_XSFloats},
    {DType::kIQ2_S, DType::kQ6_K, 0.015, 0, kIQ2_SBlocks, kIQ2_SFloats},
    {DType::kIQ3_XXS, DType::kQ4_K, 0.022, 0x1p-12, kIQ3_XXSBlocks, kIQ3_XXSFloats},
    {DType::kIQ3_S, DType::kQ4_K, 0, 0x1p-11, kIQ3_SBlocks, kIQ3_SFloats},
};

class ConvertedBlocks : public ::testing::TestWithParam<Golden> {};

TEST_P(ConvertedBlocks, AreReadAsByTheGgufPackage) {
  const Golden& golden = GetParam();
  const int64_t elements = static_cast<int64_t>(golden.floats.size());
  ASSERT_EQ(static_cast<size_t>(RowBytes(golden.dtype, elements)), golden.blocks.size());
  // One byte past any alignment, so that a sanitizer detects aligned loads.
  std::vector<uint8_t> misaligned(golden.blocks.size() + 1);
  std::memcpy(misaligned.data() + 1, golden.blocks.data(), golden.blocks.size());
  std::vector<float> out(elements + 1, std::nanf(""));
  DequantizeConverted(golden.dtype, misaligned.data() + 1, elements, out.data());
  EXPECT_EQ(std::memcmp(out.data(), golden.floats.data(), golden.floats.size_bytes()), 0);
  EXPECT_TRUE(std::isnan(out.back())) << "wrote past the row";
}

TEST_P(ConvertedBlocks, BecomeValuesWithinTheBound) {
  const Golden& golden = GetParam();
  const int64_t elements = static_cast<int64_t>(golden.floats.size());
  EXPECT_EQ(ConvertedDType(golden.dtype), golden.becomes);
  EXPECT_TRUE(CheckConvertible(golden.dtype, golden.becomes, golden.blocks.data(), elements).ok());
  std::vector<uint8_t> row(static_cast<size_t>(RowBytes(golden.becomes, elements)) + 1, 0xa5);
  ConvertRow(golden.dtype, golden.becomes, golden.blocks.data(), elements, row.data());
  EXPECT_EQ(row.back(), 0xa5) << "wrote past the row";
  std::vector<float> got(elements), expected(elements);
  DequantizeRow(golden.becomes, row.data(), elements, got.data());
  DequantizeConverted(golden.dtype, golden.blocks.data(), elements, expected.data());
  for (int64_t i = 0; i < elements; ++i) {
    float largest = 0;
    for (int64_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) {
      largest = std::max(largest, std::fabs(expected[j]));
    }
    const double error = golden.error * std::fabs(expected[i]) + golden.error_of_largest * largest;
    ASSERT_NEAR(got[i], expected[i], error) << "element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, ConvertedBlocks, ::testing::ValuesIn(kGolden),
                         [](const auto& info) { return std::string(Info(info.param.dtype).name); });

// The squared error that a conversion adds, relative to the mean square of random blocks. The least
// that a format of b bits has is 4^-b (of normally distributed weights): 40 to 200 times as much.
TEST(ConvertedBlocks, AddLittleToTheErrorOfTheirFormat) {
  struct Bound {
    DType dtype;
    double error;
  };
  constexpr Bound kBounds[] = {
      {DType::kIQ1_S, 5.5e-4},  {DType::kIQ2_XXS, 5e-4},   {DType::kIQ2_XS, 1e-4},
      {DType::kIQ2_S, 1e-4},    {DType::kIQ3_XXS, 2.5e-4}, {DType::kIQ3_S, 1e-6},
  };
  std::mt19937 random(5);
  for (const Bound& bound : kBounds) {
    constexpr int64_t kElements = 256 * 64;
    const DTypeInfo& info = Info(bound.dtype);
    std::vector<uint8_t> row(static_cast<size_t>(RowBytes(bound.dtype, kElements)));
    for (uint8_t& byte : row) byte = static_cast<uint8_t>(random());
    for (size_t at = 0; at < row.size(); at += static_cast<size_t>(info.block_bytes)) {
      row[at + 1] = 0x1c;  // 2^-8 to 2^-7
    }
    const DType becomes = ConvertedDType(bound.dtype);
    std::vector<uint8_t> converted(static_cast<size_t>(RowBytes(becomes, kElements)));
    ConvertRow(bound.dtype, becomes, row.data(), kElements, converted.data());
    std::vector<float> got(kElements), expected(kElements);
    DequantizeRow(becomes, converted.data(), kElements, got.data());
    DequantizeConverted(bound.dtype, row.data(), kElements, expected.data());
    double error = 0, square = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      error += std::pow(got[i] - expected[i], 2);
      square += std::pow(expected[i], 2);
    }
    EXPECT_LT(error / square, bound.error) << info.name;
  }
}

// Formats with minima, of weights that are all large and alike, all zero, or not numbers.
TEST(ConvertedBlocks, RoundedValuesOfAnyBlock) {
  for (DType dtype : {DType::kQ5_1, DType::kQ2_K}) {
    const DTypeInfo& info = Info(dtype);
    const auto scale = static_cast<size_t>(dtype == DType::kQ5_1 ? 0 : 80);
    for (uint16_t bits : {0x0000, 0x0001, 0x7bff, 0x7c00, 0x7e00}) {
      std::vector<uint8_t> block(static_cast<size_t>(info.block_bytes), 0xff);
      for (size_t at : {scale, scale + 2}) std::memcpy(&block[at], &bits, sizeof(bits));
      const DType becomes = ConvertedDType(dtype);
      std::vector<uint8_t> converted(static_cast<size_t>(RowBytes(becomes, info.block_elements)));
      ConvertRow(dtype, becomes, block.data(), info.block_elements, converted.data());
      std::vector<float> got(static_cast<size_t>(info.block_elements)), expected(got.size());
      DequantizeRow(becomes, converted.data(), info.block_elements, got.data());
      DequantizeConverted(dtype, block.data(), info.block_elements, expected.data());
      if (!std::isfinite(expected[0])) continue;  // converting is defined, values are not
      EXPECT_NEAR(got[0], expected[0], std::fabs(expected[0]) / 62 + 0x1p-24) << info.name << bits;
    }
  }
}

TEST(ConvertedBlocks, ScalesThatF16DoesNotHoldAreRefused) {
  std::vector<uint8_t> block(17, 0);
  const auto check = [&](DType to) {
    return CheckConvertible(DType::kMxfp4, to, block.data(), 32);
  };
  block[0] = 143;  // a scale of 2^16, so 2^15 for doubled integers
  EXPECT_TRUE(check(DType::kQ8_0).ok());
  block[0] = 144;
  EXPECT_EQ(check(DType::kQ8_0).message(),
            "has scales up to 65536, which q8_0 does not hold: up to 65504 work");
  block[0] = 254;
  EXPECT_TRUE(check(DType::kMxfp4).ok());
  block[0] = 255;
  EXPECT_EQ(check(DType::kMxfp4).code(), StatusCode::kUnimplemented);
}

// For slices: codes and 3 bits stay, with scales that f16 holds.
TEST(ConvertedBlocks, CodesStayForSlices) {
  EXPECT_EQ(SliceDType(DType::kMxfp4), DType::kMxfp4);
  EXPECT_EQ(SliceDType(DType::kQ3_K), DType::kQ3_K);
  EXPECT_EQ(SliceDType(DType::kQ2_K), DType::kQ6_K);
  for (const Golden& golden : kGolden) {
    const bool is_xs = golden.dtype == DType::kIQ4_XS;
    if (!is_xs && golden.dtype != DType::kIQ4_NL) continue;
    ASSERT_EQ(SliceDType(golden.dtype), DType::kIQ4_NL);
    const int64_t elements = static_cast<int64_t>(golden.floats.size());
    std::vector<uint8_t> row(static_cast<size_t>(RowBytes(DType::kIQ4_NL, elements)) + 1, 0xa5);
    ConvertRow(golden.dtype, DType::kIQ4_NL, golden.blocks.data(), elements, row.data());
    EXPECT_EQ(row.back(), 0xa5) << "wrote past the row";
    std::vector<float> got(elements), expected(elements);
    DequantizeConverted(DType::kIQ4_NL, row.data(), elements, got.data());
    DequantizeConverted(golden.dtype, golden.blocks.data(), elements, expected.data());
    for (int64_t i = 0; i < elements; ++i) {
      ASSERT_NEAR(got[i], expected[i], is_xs ? 0x1p-11 * std::fabs(expected[i]) : 0) << i;
    }
  }
}

}  // namespace
}  // namespace pagemill::ops
