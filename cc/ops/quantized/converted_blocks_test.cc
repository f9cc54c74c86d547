#include "cc/ops/quantized/converted_blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
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
  double error;  // relative, of a converted value
  std::span<const uint8_t> blocks;
  std::span<const uint32_t> floats;  // their bits
};

const Golden kGolden[] = {
    {DType::kQ5_1, DType::kBF16, 0x1p-8, kQ5_1Blocks, kQ5_1Floats},
    {DType::kQ2_K, DType::kBF16, 0x1p-8, kQ2_KBlocks, kQ2_KFloats},
    {DType::kQ3_K, DType::kQ6_K, 0, kQ3_KBlocks, kQ3_KFloats},
    {DType::kIQ4_NL, DType::kQ8_0, 0, kIQ4_NLBlocks, kIQ4_NLFloats},
    {DType::kIQ4_XS, DType::kQ8_0, 0x1p-11, kIQ4_XSBlocks, kIQ4_XSFloats},
    {DType::kMxfp4, DType::kQ8_0, 0, kMXFP4Blocks, kMXFP4Floats},
    {DType::kTQ1_0, DType::kQ4_0, 0, kTQ1_0Blocks, kTQ1_0Floats},
    {DType::kTQ2_0, DType::kQ4_0, 0, kTQ2_0Blocks, kTQ2_0Floats},
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
  EXPECT_TRUE(CheckConvertible(golden.dtype, golden.blocks.data(), elements).ok());
  std::vector<uint8_t> row(static_cast<size_t>(RowBytes(golden.becomes, elements)) + 1, 0xa5);
  ConvertRow(golden.dtype, golden.blocks.data(), elements, row.data());
  EXPECT_EQ(row.back(), 0xa5) << "wrote past the row";
  std::vector<float> got(elements), expected(elements);
  DequantizeRow(golden.becomes, row.data(), elements, got.data());
  DequantizeConverted(golden.dtype, golden.blocks.data(), elements, expected.data());
  for (int64_t i = 0; i < elements; ++i) {
    ASSERT_NEAR(got[i], expected[i], golden.error * std::fabs(expected[i])) << "element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, ConvertedBlocks, ::testing::ValuesIn(kGolden),
                         [](const auto& info) { return std::string(Info(info.param.dtype).name); });

TEST(ConvertedBlocks, ScalesThatF16DoesNotHoldAreRefused) {
  std::vector<uint8_t> block(17, 0);
  block[0] = 143;  // a scale of 2^16, so 2^15 for doubled integers
  EXPECT_TRUE(CheckConvertible(DType::kMxfp4, block.data(), 32).ok());
  block[0] = 144;
  EXPECT_EQ(CheckConvertible(DType::kMxfp4, block.data(), 32).message(),
            "has scales up to 65536.000000, which q8_0 does not hold: up to 65504 work");
}

}  // namespace
}  // namespace pagemill::ops
