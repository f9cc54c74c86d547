#include "cc/runner/draft_inputs/draft_media.h"

#include <gtest/gtest.h>

#include <vector>

namespace pagemill::runner {
namespace {

constexpr int32_t kWidth = 3;

class DraftMediaTest : public testing::Test {
 protected:
  // The embedding of a token is full of 10 * slot + token.
  void Append(int32_t slot, std::initializer_list<int32_t> tokens) {
    for (int32_t token : tokens) {
      std::vector<float> values(2 * kWidth, static_cast<float>(10 * slot + token));
      values[0] = -1;  // of another row
      const TensorView rows = TensorView::Dense(values.data(), DType::kF32, {2, kWidth});
      ASSERT_TRUE(media_.Fits(rows, 2));
      media_.Append(slot, token, rows, /*row=*/1);
    }
  }

  // The first element of each row of the pass; the others are equal.
  std::vector<float> Pass() {
    const TensorView view = media_.embeddings();
    std::vector<float> rows;
    for (int64_t i = 0; i < view.shape[0]; ++i) {
      rows.push_back(view.Row<const float>(i)[0]);
      EXPECT_EQ(view.Row<const float>(i)[kWidth - 1], rows.back());
    }
    return rows;
  }

  std::vector<int32_t> Rows() const { return {media_.rows().begin(), media_.rows().end()}; }

  DraftMedia media_{{.width = kWidth, .type = DType::kF32, .num_slots = 2}};
};

TEST_F(DraftMediaTest, APassHasTheEmbeddingsOfItsTokens) {
  Append(0, {2, 3, 6});
  Append(1, {4, 5});
  media_.BeginPass();
  media_.AddToPass(1, /*position=*/5, /*count=*/2, /*first=*/0);
  media_.AddToPass(0, /*position=*/1, /*count=*/5, /*first=*/2);
  EXPECT_EQ(Rows(), (std::vector<int32_t>{0, 3, 4}));
  EXPECT_EQ(Pass(), (std::vector<float>{15, 2, 3}));
  media_.BeginPass();
  EXPECT_TRUE(Rows().empty());
  EXPECT_EQ(media_.embeddings().shape[0], 0);
}

TEST_F(DraftMediaTest, DropsWhatIsBehind) {
  Append(0, {2, 3, 6});
  media_.DropBefore(0, 2);
  EXPECT_EQ(media_.size(0), 3u);
  media_.DropBefore(0, 4);
  EXPECT_EQ(media_.size(0), 1u);
  Append(0, {7});
  media_.BeginPass();
  media_.AddToPass(0, 0, 10, 0);
  EXPECT_EQ(Rows(), (std::vector<int32_t>{6, 7}));
  EXPECT_EQ(Pass(), (std::vector<float>{6, 7}));
  media_.DropBefore(0, 100);
  EXPECT_EQ(media_.size(0), 0u);
}

TEST_F(DraftMediaTest, AnotherRequestHasNone) {
  Append(0, {2});
  Append(1, {2});
  media_.Start(0);
  media_.BeginPass();
  media_.AddToPass(0, 0, 5, 0);
  media_.AddToPass(1, 0, 5, 5);
  EXPECT_EQ(Rows(), (std::vector<int32_t>{7}));
  Append(0, {0});  // tokens count from the beginning again
  EXPECT_EQ(media_.size(0), 1u);
}

TEST_F(DraftMediaTest, RefusesOtherInputs) {
  std::vector<float> values(8);
  EXPECT_FALSE(media_.Fits(TensorView::Dense(values.data(), DType::kF32, {2, 4}), 2));
  EXPECT_FALSE(media_.Fits(TensorView::Dense(values.data(), DType::kBF16, {2, kWidth}), 2));
  EXPECT_FALSE(media_.Fits(TensorView::Dense(values.data(), DType::kF32, {2, kWidth}), 3));
  EXPECT_TRUE(media_.Fits(TensorView::Dense(values.data(), DType::kF32, {2, kWidth}), 2));
}

}  // namespace
}  // namespace pagemill::runner
