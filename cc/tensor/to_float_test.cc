#include "cc/tensor/to_float.h"

#include <gtest/gtest.h>

#include <vector>

#include "cc/tensor/float16.h"

namespace pagemill {
namespace {

// Rows of 2 with a gap of one element between them.
template <typename T>
std::vector<float> Widen(DType dtype, std::vector<T> stored) {
  TensorView view = TensorView::Dense(stored.data(), dtype, {2, 2});
  view.row_stride_bytes = 3 * sizeof(T);
  std::vector<float> wide(4);
  ToFloat(view, wide.data());
  return wide;
}

TEST(ToFloatTest, ReadsEveryTypeByRows) {
  const std::vector<float> expected = {1, -2, 3, 0.5f};
  EXPECT_EQ(Widen<float>(DType::kF32, {1, -2, 9, 3, 0.5f}), expected);
  const auto halves = [](auto narrow) {
    return std::vector<uint16_t>{narrow(1), narrow(-2), narrow(9), narrow(3), narrow(0.5f)};
  };
  EXPECT_EQ(Widen(DType::kBF16, halves([](float x) { return FloatToBf16(x); })), expected);
  EXPECT_EQ(Widen(DType::kF16, halves([](float x) { return FloatToF16(x); })), expected);
  EXPECT_EQ(Widen<int32_t>(DType::kI32, {1, -2, 9, 3, 4}), (std::vector<float>{1, -2, 3, 4}));
}

// Rows of 2 with a gap that keeps its value.
template <typename T>
std::vector<T> Narrow(DType dtype, const std::vector<float>& wide, T gap) {
  std::vector<T> stored(5, gap);
  TensorView view = TensorView::Dense(stored.data(), dtype, {2, 2});
  view.row_stride_bytes = 3 * sizeof(T);
  FromFloat(wide.data(), view);
  return stored;
}

TEST(FromFloatTest, WritesEveryTypeByRows) {
  // 1 + 2^-8 and 1 + 3 * 2^-8 lie between two bf16 numbers: the even one of each.
  const std::vector<float> wide = {1.00390625f, 1.01171875f, -2, 1e30f};
  EXPECT_EQ(Narrow<float>(DType::kF32, wide, 9),
            (std::vector<float>{wide[0], wide[1], 9, -2, 1e30f}));
  EXPECT_EQ(Narrow<uint16_t>(DType::kBF16, wide, 9),
            (std::vector<uint16_t>{0x3f80, 0x3f82, 9, 0xc000, FloatToBf16(1e30f)}));
  EXPECT_EQ(Narrow<uint16_t>(DType::kF16, wide, 9),
            (std::vector<uint16_t>{FloatToF16(wide[0]), FloatToF16(wide[1]), 9, 0xc000, 0x7c00}));
}

TEST(ToFloatTest, NothingHasNoElements) {
  ToFloat(TensorView{}, nullptr);
  FromFloat(nullptr, TensorView{});
}

}  // namespace
}  // namespace pagemill
