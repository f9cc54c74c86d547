#include "cc/tensor/tensor_view.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

namespace pagemill {
namespace {

static_assert(std::is_trivially_copyable_v<TensorView>);

TEST(TensorView, DenseDerivesStrideAndCounts) {
  std::vector<float> data(2 * 3 * 5);
  const TensorView view = TensorView::Dense(data.data(), DType::kF32, {2, 3, 5});
  EXPECT_EQ(view.rank, 3);
  EXPECT_EQ(view.RowElements(), 15);
  EXPECT_EQ(view.Elements(), 30);
  EXPECT_EQ(view.row_stride_bytes, 60);
  EXPECT_TRUE(view.IsDense());
  EXPECT_EQ(view.Row<float>(1), data.data() + 15);
  EXPECT_EQ(view.Data<float>(), data.data());
}

TEST(TensorView, RowsMayBePartOfAWiderBuffer) {
  std::vector<float> data(4 * 10);
  TensorView view = TensorView::Dense(data.data() + 2, DType::kF32, {4, 6});
  view.row_stride_bytes = 40;
  EXPECT_FALSE(view.IsDense());
  EXPECT_EQ(view.Elements(), 24);
  EXPECT_EQ(view.Row<float>(3), data.data() + 32);
}

TEST(TensorView, RowsOfBlockFormatsAreCountedInBlocks) {
  std::vector<uint8_t> data(3 * 2 * 18);
  const TensorView view = TensorView::Dense(data.data(), DType::kQ4_0, {3, 64});
  EXPECT_EQ(view.row_stride_bytes, 36);
  EXPECT_TRUE(view.IsDense());
  EXPECT_EQ(view.Row<uint8_t>(2), data.data() + 72);
}

TEST(TensorView, ScalarsVectorsAndEmptyTensors) {
  EXPECT_EQ(TensorView{}.rank, 0);
  EXPECT_EQ(TensorView{}.Elements(), 1);
  const TensorView vector = TensorView::Dense(nullptr, DType::kI32, {7});
  EXPECT_EQ(vector.RowElements(), 1);
  EXPECT_EQ(vector.Elements(), 7);
  EXPECT_EQ(vector.row_stride_bytes, 4);
  EXPECT_EQ(TensorView::Dense(nullptr, DType::kF32, {0, 9}).Elements(), 0);
}

}  // namespace
}  // namespace pagemill
