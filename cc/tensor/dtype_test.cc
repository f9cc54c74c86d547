#include "cc/tensor/dtype.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

namespace pagemill {
namespace {

constexpr DType kAll[] = {
    DType::kF32,    DType::kBF16,    DType::kF16,    DType::kI32,   DType::kI8,      DType::kU8,
    DType::kK8V4,   DType::kQ4_0,    DType::kQ4_1,   DType::kQ5_0,  DType::kQ8_0,    DType::kQ4_K,
    DType::kQ5_K,   DType::kQ6_K,    DType::kF8E4M3, DType::kQ5_1,  DType::kQ2_K,    DType::kQ3_K,
    DType::kIQ4_NL, DType::kIQ4_XS,  DType::kMxfp4,  DType::kTQ1_0, DType::kTQ2_0,   DType::kIQ1_S,
    DType::kIQ1_M,  DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S, DType::kIQ3_XXS, DType::kIQ3_S};

TEST(DType, NamesAreUniqueAndParseBack) {
  std::set<std::string_view> names;
  for (DType dtype : kAll) {
    EXPECT_EQ(Info(dtype).dtype, dtype);
    EXPECT_TRUE(names.insert(Info(dtype).name).second) << Info(dtype).name;
    EXPECT_EQ(ParseDType(Info(dtype).name), dtype);
  }
  EXPECT_EQ(ParseDType("q4_1"), DType::kQ4_1);
  for (std::string_view unknown : {"", "F32", "q4_2", "f32 ", "q4"}) {
    EXPECT_EQ(ParseDType(unknown), std::nullopt) << unknown;
  }
}

TEST(DType, BlockFormatsAreThoseOfMoreThanOneElement) {
  for (DType dtype : kAll) {
    EXPECT_EQ(IsBlockFormat(dtype), Info(dtype).block_elements > 1) << Info(dtype).name;
  }
}

TEST(DType, RowBytesCountsWholeBlocks) {
  EXPECT_EQ(RowBytes(DType::kF32, 7), 28);
  EXPECT_EQ(RowBytes(DType::kBF16, 7), 14);
  EXPECT_EQ(RowBytes(DType::kI8, 7), 7);
  EXPECT_EQ(RowBytes(DType::kQ4_1, 576), 18 * 20);
  EXPECT_EQ(RowBytes(DType::kQ6_K, 512), 2 * 210);
  EXPECT_EQ(RowBytes(DType::kQ8_0, 0), 0);
}

}  // namespace
}  // namespace pagemill
