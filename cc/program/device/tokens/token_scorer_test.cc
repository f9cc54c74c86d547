#include "cc/program/device/tokens/token_scorer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "cc/device/testing/test_device.h"
#include "cc/ops/sample/token_scores.h"
#include "cc/ops/testing/test_device_ops.h"

namespace pagemill::program {
namespace {

using device::testing::TestDevice;

constexpr int64_t kRows = 3, kColumns = 4, kSlots = 2;

TensorView Logits(void* data) {
  return TensorView::Dense(data, DType::kF32, {kRows, kColumns});
}

class TokenScorerTest : public ::testing::Test {
 protected:
  TokenScorerTest() {
    logits_ = *device_.Allocate(4 * kRows * kColumns, "logits");
    columns_ = *device_.Allocate(4 * kRows, "columns");
    host_ = *device_.AllocateHost(4 * kRows * kColumns, "logits");
    stream_ = *device_.NewStream();
    done_ = device_.NewEvent();
    plan_ = *PlanScorer({.ops = ops::testing::TestDeviceOps()}, Logits(nullptr), kSlots);
  }

  void SetLogits(const std::vector<float>& logits) {
    std::ranges::copy(std::as_bytes(std::span(logits)), host_.bytes().begin());
    stream_->CopyToDevice(logits_.data(), host_.bytes());
    stream_->Record(*done_);
    ASSERT_TRUE(done_->Synchronize().ok());
  }

  // Of rows that had other logits before they were changed; columns 0, 1 and 2 are chosen.
  std::span<const ops::TokenScores> Score(const TokenScorer& scorer, const StepDraws& draws,
                                          ScoreBuffer* step) {
    EXPECT_TRUE(scorer.Check(draws, kRows).ok());
    const float two = std::log(2.0f);
    SetLogits({0, 0, two, -INFINITY, 0, 0, two, -INFINITY, 0, 0, two, -INFINITY});
    scorer.EnqueueCopies(Logits(logits_.data()), draws, step, *stream_);
    SetLogits({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    const std::vector<int32_t> chosen = {0, 1, 2};
    stream_->CopyToDevice(columns_.data(), std::as_bytes(std::span(chosen)));
    scorer.EnqueueScores(Logits(logits_.data()),
                         reinterpret_cast<const int32_t*>(columns_.data()), *step, *stream_);
    scorer.EnqueueResults(step, *stream_);
    stream_->Record(*done_);
    const Status status = done_->Synchronize();
    EXPECT_TRUE(status.ok()) << status.ToString();
    return step->Scores();
  }

  TestDevice device_;
  device::DeviceMemory logits_, columns_;
  device::HostMemory host_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Event> done_;
  ScorerPlan plan_;
};

TEST_F(TokenScorerTest, ScoresRowsFromBeforeTheyWereChanged) {
  const TokenScorer scorer = *TokenScorer::Create(plan_, device_);
  ScoreBuffer step = *scorer.NewBuffer(device_);
  std::vector<ops::RowDraw> rows(kRows);
  rows[2].mask = 0;
  const std::vector<ops::LogitBias> biases = {{0, 1, 1.0f}};
  const std::vector<ops::ScoredRow> scored = {
      {.row = 0}, {.row = 1, .token_id = 3, .copy = 1}, {.row = 2, .num_top = 2}};
  const auto scores = Score(scorer, {.rows = rows, .biases = biases, .scored = scored}, &step);
  ASSERT_EQ(scores.size(), 3u);
  EXPECT_FLOAT_EQ(scores[0].logprob, -std::log(4.0f)) << "a bias changed the row";
  EXPECT_EQ(scores[0].rank, 2);
  EXPECT_FLOAT_EQ(scores[1].logprob, -std::log(4.0f)) << "nothing did: logits are those of now";
  EXPECT_EQ(scores[1].rank, 1);
  EXPECT_FLOAT_EQ(scores[2].logprob, -std::log(2.0f)) << "a mask changed the row";
  EXPECT_EQ(scores[2].top_ids[0], 2);
  EXPECT_EQ(scores[2].top_ids[1], 0);
  EXPECT_FLOAT_EQ(scores[2].top_logprobs[1], -std::log(4.0f));
  EXPECT_EQ(device_.num_pageable_copies(), 1) << "the columns";
  // The next step wants other rows, or none.
  const std::vector<ops::ScoredRow> one = {{.row = 2}};
  const std::vector<ops::RowPenalties> penalties = {{.row = 2}};
  std::vector<ops::RowDraw> no_masks(kRows);
  const auto next = Score(scorer, {.rows = no_masks, .penalties = penalties, .scored = one}, &step);
  ASSERT_EQ(next.size(), 1u);
  EXPECT_FLOAT_EQ(next[0].logprob, -std::log(2.0f));
  EXPECT_TRUE(Score(scorer, {.rows = no_masks}, &step).empty());
  // A step that is not sampled does not have those of the one before.
  Score(scorer, {.rows = no_masks, .scored = one}, &step);
  step.Clear();
  EXPECT_TRUE(step.Scores().empty());
}

TEST_F(TokenScorerTest, RefusesWhatIsNotThere) {
  const TokenScorer scorer = *TokenScorer::Create(plan_, device_);
  const std::vector<ops::RowDraw> rows(kRows);
  const std::vector<ops::ScoredRow> wrong[] = {
      {{.row = 3}}, {{.row = -1}}, {{.token_id = 4}}, {{.num_top = -1}}, {{.num_top = 21}},
      {{}, {}, {}, {}}};
  for (const auto& scored : wrong) {
    EXPECT_EQ(scorer.Check({.rows = rows, .scored = scored}, kRows).message(),
              "the log probabilities that are wanted do not fit a step of 3 rows");
  }
  const std::vector<ops::ScoredRow> all = {{.row = 0}, {.row = 1}, {.row = 2}};
  std::vector<ops::LogitBias> biases = {{0, 0, 1.0f}, {1, 0, 1.0f}};
  EXPECT_TRUE(scorer.Check({.rows = rows, .biases = biases, .scored = all}, kRows).ok());
  biases.push_back({2, 0, 1.0f});
  EXPECT_EQ(scorer.Check({.rows = rows, .biases = biases, .scored = all}, kRows).message(),
            "log probabilities are wanted of more than 2 rows that are changed");
}

TEST_F(TokenScorerTest, WithoutSlotsNothingIsAllocatedAndNothingScored) {
  const ScorerPlan plan =
      *PlanScorer({.ops = ops::testing::TestDeviceOps()}, Logits(nullptr), /*num_slots=*/0);
  EXPECT_EQ(plan.copy_bytes() + plan.step_bytes(), 0);
  const TokenScorer scorer = *TokenScorer::Create(plan, device_);
  EXPECT_TRUE(scorer.NewBuffer(device_).ok());
  const std::vector<ops::RowDraw> rows(kRows);
  EXPECT_TRUE(scorer.Check({.rows = rows}, kRows).ok());
  const std::vector<ops::ScoredRow> scored = {{.row = 0}};
  EXPECT_FALSE(scorer.Check({.rows = rows, .scored = scored}, kRows).ok());
}

}  // namespace
}  // namespace pagemill::program
