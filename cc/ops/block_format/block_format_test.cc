#include "cc/ops/block_format/block_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "cc/ops/block_format/block_layout.h"

namespace pagemill::ops {
namespace {

#include "cc/ops/block_format/golden_blocks.inc"

struct Golden {
  DType dtype;
  std::span<const uint8_t> blocks;
  std::span<const uint32_t> floats;  // their bits
};

const Golden kGolden[] = {
    {DType::kQ4_0, kQ4_0Blocks, kQ4_0Floats}, {DType::kQ4_1, kQ4_1Blocks, kQ4_1Floats},
    {DType::kQ5_0, kQ5_0Blocks, kQ5_0Floats}, {DType::kQ8_0, kQ8_0Blocks, kQ8_0Floats},
    {DType::kQ4_K, kQ4_KBlocks, kQ4_KFloats}, {DType::kQ5_K, kQ5_KBlocks, kQ5_KFloats},
    {DType::kQ6_K, kQ6_KBlocks, kQ6_KFloats},
};

class GoldenBlocks : public ::testing::TestWithParam<Golden> {};

// Bit for bit: block_layout.h says why no implementation may differ.
TEST_P(GoldenBlocks, EqualTheGgufPackage) {
  const Golden& golden = GetParam();
  const int64_t elements = static_cast<int64_t>(golden.floats.size());
  ASSERT_EQ(static_cast<size_t>(RowBytes(golden.dtype, elements)), golden.blocks.size());
  // One byte past any alignment, so that a sanitizer detects aligned loads.
  std::vector<uint8_t> misaligned(golden.blocks.size() + 1);
  std::memcpy(misaligned.data() + 1, golden.blocks.data(), golden.blocks.size());
  std::vector<float> out(elements + 1, std::nanf(""));
  DequantizeRow(golden.dtype, misaligned.data() + 1, elements, out.data());
  for (int64_t i = 0; i < elements; ++i) {
    uint32_t bits;
    std::memcpy(&bits, &out[i], 4);
    ASSERT_EQ(bits, golden.floats[i]) << "element " << i << ": " << out[i];
  }
  EXPECT_TRUE(std::isnan(out[elements])) << "wrote past the row";
}

INSTANTIATE_TEST_SUITE_P(Formats, GoldenBlocks, ::testing::ValuesIn(kGolden),
                         [](const auto& info) { return std::string(Info(info.param.dtype).name); });

TEST(BlockLayout, AgreesWithDTypeInfo) {
  for (const Golden& golden : kGolden) {
    EXPECT_EQ(LayoutOf(golden.dtype).elements, Info(golden.dtype).block_elements);
    EXPECT_EQ(LayoutOf(golden.dtype).bytes, Info(golden.dtype).block_bytes);
  }
  for (DType plain : {DType::kF32, DType::kBF16, DType::kF16}) {
    EXPECT_EQ(LayoutOf(plain).elements, 1);
    EXPECT_EQ(LayoutOf(plain).bytes, Info(plain).block_bytes);
  }
}

TEST(DequantizeRow, ReadsPlainTypesInHostOrder) {
  const float f32[] = {1.5f, -2.25f, 0.0f};
  const uint16_t bf16[] = {0x3fc0, 0xc010, 0x0000};
  const uint16_t f16[] = {0x3e00, 0xc080, 0x0000};
  const std::pair<DType, const void*> rows[] = {
      {DType::kF32, f32}, {DType::kBF16, bf16}, {DType::kF16, f16}};
  for (const auto& [dtype, row] : rows) {
    float out[3];
    DequantizeRow(dtype, static_cast<const uint8_t*>(row), 3, out);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(out[i], f32[i]) << Info(dtype).name;
  }
}

TEST(IsWeightDType, ExcludesIntegers) {
  for (DType dtype : kWeightDTypes) EXPECT_TRUE(IsWeightDType(dtype));
  EXPECT_FALSE(IsWeightDType(DType::kI32));
  EXPECT_FALSE(IsWeightDType(DType::kI8));
  EXPECT_FALSE(IsWeightDType(DType::kU8));
}

}  // namespace
}  // namespace pagemill::ops
