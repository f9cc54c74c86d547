#include "cc/runner/draft_inputs/draft_states.h"

#include <gtest/gtest.h>

#include <vector>

namespace pagemill::runner {
namespace {

constexpr int32_t kWidth = 3;

// Rows of states, row i full of first + i.
struct Rows {
  Rows(float first, int64_t count) : values(static_cast<size_t>(count * kWidth)) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i / kWidth);
    view = TensorView::Dense(values.data(), DType::kF32, {count, kWidth});
  }
  std::vector<float> values;
  TensorView view;
};

// The first element of each row of the pass; the others are equal.
std::vector<float> PassOf(DraftStates& states) {
  const TensorView view = states.view();
  std::vector<float> rows;
  for (int64_t i = 0; i < view.shape[0]; ++i) {
    rows.push_back(view.Row<const float>(i)[0]);
    EXPECT_EQ(view.Row<const float>(i)[kWidth - 1], rows.back());
  }
  return rows;
}

DraftStates Make() { return DraftStates({.width = kWidth, .type = DType::kF32, .num_slots = 2}); }

TEST(DraftStates, GivesATokenTheStateOfTheOneBefore) {
  DraftStates states = Make();
  const Rows rows(10, 5);
  states.Start(1, 0);
  states.Append(1, rows.view, 1, 3);  // 11, 12, 13
  states.Append(0, rows.view, 0, 1);
  EXPECT_EQ(states.num_tokens(1), 3);
  states.BeginPass();
  states.AddToPass(1, 0, 4);
  states.AddToPass(0, 1, 1);
  EXPECT_EQ(PassOf(states), (std::vector<float>{0, 11, 12, 13, 10}));
}

TEST(DraftStates, AStateThatIsNotThereIsZero) {
  DraftStates states = Make();
  const Rows rows(10, 5);
  states.Append(0, rows.view, 0, 5);
  states.Start(0, 8);  // another request, of which 8 tokens were cached
  states.Append(0, rows.view, 0, 2);
  states.BeginPass();
  states.AddToPass(0, 7, 5);
  EXPECT_EQ(PassOf(states), (std::vector<float>{0, 0, 10, 11, 0}));
}

TEST(DraftStates, DroppedRowsAreGoneAndOthersKeepTheirTokens) {
  DraftStates states = Make();
  const Rows rows(10, 5);
  states.Append(0, rows.view, 0, 5);
  states.DropBefore(0, 2);
  states.DropBefore(0, 1);
  states.BeginPass();
  states.AddToPass(0, 1, 5);
  EXPECT_EQ(PassOf(states), (std::vector<float>{0, 0, 12, 13, 14}));
  states.DropBefore(0, 100);
  EXPECT_EQ(states.num_tokens(0), 5);
}

TEST(DraftStates, RowsOfAPromptAreGivenBack) {
  DraftStates states = Make();
  const Rows rows(0, 1000);
  states.Append(0, rows.view, 0, 1000);
  EXPECT_GE(states.bytes(0), 1000 * kWidth * sizeof(float));
  states.DropBefore(0, 998);
  EXPECT_LE(states.bytes(0), 4 * kWidth * sizeof(float));
  states.BeginPass();
  states.AddToPass(0, 999, 2);
  EXPECT_EQ(PassOf(states), (std::vector<float>{998, 999}));
  states.Start(0, 0);
  EXPECT_EQ(states.bytes(0), 0u);
}

TEST(DraftStates, KeepsTheHeadsOwnByDraft) {
  DraftStates states = Make();
  const Rows rows(20, 3);
  states.BeginStep(4);
  states.Keep(3, rows.view, 0);
  states.Keep(1, rows.view, 2);
  states.BeginPass();
  states.AddOwnToPass(1);
  states.AddOwnToPass(3);
  EXPECT_EQ(PassOf(states), (std::vector<float>{22, 20}));
}

TEST(DraftStates, KnowsWhichOutputsFit) {
  DraftStates states = Make();
  Rows rows(0, 4);
  EXPECT_TRUE(states.Fits(rows.view, 4));
  EXPECT_FALSE(states.Fits(rows.view, 5));
  EXPECT_FALSE(states.Fits({}, 0));
  EXPECT_FALSE(states.Fits(TensorView::Dense(rows.values.data(), DType::kF32, {6, 2}), 1));
  EXPECT_FALSE(states.Fits(TensorView::Dense(rows.values.data(), DType::kBF16, {4, kWidth}), 1));
}

}  // namespace
}  // namespace pagemill::runner
