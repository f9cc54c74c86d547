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
  const auto halves = [](uint16_t (*narrow)(float)) {
    return std::vector<uint16_t>{narrow(1), narrow(-2), narrow(9), narrow(3), narrow(0.5f)};
  };
  EXPECT_EQ(Widen(DType::kBF16, halves(FloatToBf16)), expected);
  EXPECT_EQ(Widen(DType::kF16, halves(FloatToF16)), expected);
  EXPECT_EQ(Widen<int32_t>(DType::kI32, {1, -2, 9, 3, 4}), (std::vector<float>{1, -2, 3, 4}));
}

TEST(ToFloatTest, NothingHasNoElements) { ToFloat(TensorView{}, nullptr); }

}  // namespace
}  // namespace pagemill
