#include "cc/program/device/tokens/logit_adjuster.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cc/device/testing/test_device.h"
#include "cc/ops/sample/row_adjustments.h"
#include "cc/ops/testing/test_device_ops.h"

namespace pagemill::program {
namespace {

using device::testing::TestDevice;

constexpr int64_t kRows = 3, kColumns = 5, kTokens = 4, kSlots = 2;

TensorView Logits(void* data) {
  return TensorView::Dense(data, DType::kF32, {kRows, kColumns});
}

class LogitAdjusterTest : public ::testing::Test {
 protected:
  LogitAdjusterTest() {
    logits_ = *device_.Allocate(4 * kRows * kColumns, "logits");
    ids_ = *device_.Allocate(4 * kTokens, "ids");
    host_ = *device_.AllocateHost(4 * kRows * kColumns, "logits");
    stream_ = *device_.NewStream();
    done_ = device_.NewEvent();
    plan_ = *PlanAdjuster({.ops = ops::testing::TestDeviceOps()}, Logits(nullptr), kTokens, kSlots);
  }

  std::span<float> host() { return {reinterpret_cast<float*>(host_.data()), kRows * kColumns}; }

  // Rows of ones, adjusted.
  std::vector<float> Adjusted(const LogitAdjuster& adjuster, const StepDraws& draws,
                              AdjustmentBuffer* step) {
    EXPECT_TRUE(adjuster.Check(draws, kRows, kTokens).ok());
    std::ranges::fill(host(), 1.0f);
    stream_->CopyToDevice(logits_.data(), host_.bytes());
    const std::vector<int32_t> ids = {3, 0, 4, 1};
    stream_->CopyToDevice(ids_.data(), std::as_bytes(std::span(ids)));
    stream_->Record(*done_);
    EXPECT_TRUE(done_->Synchronize().ok());
    adjuster.Enqueue(Logits(logits_.data()),
                     {reinterpret_cast<const int32_t*>(ids_.data()), kTokens}, draws, step,
                     *stream_);
    stream_->CopyToHost(host_.bytes(), logits_.data());
    stream_->Record(*done_);
    const Status status = done_->Synchronize();
    EXPECT_TRUE(status.ok()) << status.ToString();
    return {host().begin(), host().end()};
  }

  TestDevice device_;
  device::DeviceMemory logits_, ids_;
  device::HostMemory host_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Event> done_;
  AdjusterPlan plan_;
};

TEST_F(LogitAdjusterTest, CountsStayFromStepToStep) {
  const LogitAdjuster adjuster = *LogitAdjuster::Create(plan_, device_);
  AdjustmentBuffer step = *adjuster.NewBuffer(device_);
  const std::vector<int32_t> both = {1, 0};
  const std::vector<ops::TokenCount> first = {{1, 2, ops::kInPrompt}, {0, 4, 2 * ops::kOneOutput}};
  const std::vector<ops::LogitBias> biases = {{1, 0, -INFINITY}, {1, 3, 0.5f}};
  const std::vector<ops::RowPenalties> penalties = {{.row = 2, .slot = 1, .repetition = 2.0f},
                                                    {.row = 0, .slot = 0, .frequency = 0.25f}};
  EXPECT_EQ(Adjusted(adjuster,
                     {.cleared_slots = both,
                      .counts = first,
                      .biases = biases,
                      .penalties = penalties},
                     &step),
            (std::vector<float>{1, 1, 1, 1, 0.5f, -INFINITY, 1, 1, 1.5f, 1, 1, 1, 0.5f, 1, 1}));
  // One more, a token of the step; the other slot begins anew.
  const std::vector<int32_t> cleared = {0};
  const std::vector<ops::TokenCount> newest = {{1, ops::TokenOfInput(2), ops::kOneOutput}};
  EXPECT_EQ(
      Adjusted(adjuster,
               {.cleared_slots = cleared, .counts = newest, .penalties = penalties}, &step),
      (std::vector<float>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0.5f, 1, 0.5f}));
  EXPECT_EQ(device_.num_pageable_copies(), 2) << "the ids, twice";
}

// Tokens of the step in front of a row count for it alone.
TEST_F(LogitAdjusterTest, DraftsAreCountedForTheirRow) {
  const LogitAdjuster adjuster = *LogitAdjuster::Create(plan_, device_);
  AdjustmentBuffer step = *adjuster.NewBuffer(device_);
  const std::vector<int32_t> cleared = {0};
  const std::vector<ops::TokenCount> counts = {{0, 4, ops::kOneOutput}};
  const std::vector<ops::RowPenalties> penalties = {
      {.row = 0, .slot = 0, .frequency = 0.25f},
      {.row = 1, .slot = 0, .frequency = 0.25f, .first_draft = 1, .num_drafts = 1},
      {.row = 2, .slot = 0, .frequency = 0.25f, .first_draft = 1, .num_drafts = 2}};
  EXPECT_EQ(
      Adjusted(adjuster,
               {.cleared_slots = cleared, .counts = counts, .penalties = penalties}, &step),
      (std::vector<float>{1, 1, 1, 1, 0.75f, 0.75f, 1, 1, 1, 0.75f, 0.75f, 1, 1, 1, 0.5f}));
}

// With room for two changes at a time.
TEST_F(LogitAdjusterTest, ManyChangesAreSentInParts) {
  plan_.changes_at_once = 2;
  const LogitAdjuster adjuster = *LogitAdjuster::Create(plan_, device_);
  AdjustmentBuffer step = *adjuster.NewBuffer(device_);
  const std::vector<int32_t> cleared = {1};
  const std::vector<ops::RowPenalties> penalties = {{.row = 1, .slot = 1, .presence = 4.0f}};
  for (const size_t size : {1u, 2u, 3u, 4u, 5u}) {
    std::vector<ops::TokenCount> counts;
    std::vector<ops::LogitBias> biases;
    std::vector<float> expected(kRows * kColumns, 1.0f);
    for (int32_t i = 0; i < static_cast<int32_t>(size); ++i) {
      counts.push_back({1, 4 - i, ops::kOneOutput});
      biases.push_back({1, i, 8.0f});
      expected[static_cast<size_t>(kColumns + 4 - i)] -= 4.0f;
      expected[static_cast<size_t>(kColumns + i)] += 8.0f;
    }
    EXPECT_EQ(Adjusted(adjuster,
                       {.cleared_slots = cleared,
                        .counts = counts,
                        .biases = biases,
                        .penalties = penalties},
                       &step),
              expected)
        << size << " changes";
  }
}

TEST_F(LogitAdjusterTest, RefusesWhatIsNotThere) {
  const LogitAdjuster adjuster = *LogitAdjuster::Create(plan_, device_);
  const std::vector<int32_t> slots = {2}, many = {0, 1, 0};
  EXPECT_FALSE(adjuster.Check({.cleared_slots = slots}, kRows, kTokens).ok());
  EXPECT_FALSE(adjuster.Check({.cleared_slots = many}, kRows, kTokens).ok());
  const std::vector<ops::TokenCount> counts[] = {
      {{2, 0, 1}}, {{-1, 0, 1}}, {{0, 5, 1}}, {{0, ops::TokenOfInput(4), 1}}};
  for (const auto& count : counts) {
    EXPECT_FALSE(adjuster.Check({.counts = count}, kRows, kTokens).ok());
  }
  const std::vector<ops::LogitBias> biases[] = {
      {{3, 0, 1}}, {{-1, 0, 1}}, {{0, 5, 1}}, {{0, -1, 1}}};
  for (const auto& bias : biases) {
    EXPECT_FALSE(adjuster.Check({.biases = bias}, kRows, kTokens).ok());
  }
  const std::vector<ops::RowPenalties> penalties[] = {
      {{.row = 3}},
      {{.row = -1}},
      {{.slot = 2}},
      {{.slot = -1}},
      {{.first_draft = -1, .num_drafts = 1}},
      {{.first_draft = 3, .num_drafts = 2}},
      {{.num_drafts = -1}},
      {{}, {}, {}, {}}};
  for (const auto& row : penalties) {
    EXPECT_EQ(adjuster.Check({.penalties = row}, kRows, kTokens).message(),
              "the biases and penalties of a step do not fit its 3 rows, 4 tokens and 2 slots");
  }
}

TEST_F(LogitAdjusterTest, WithoutSlotsNothingIsAllocatedAndNothingAdjusted) {
  const AdjusterPlan plan =
      *PlanAdjuster({.ops = ops::testing::TestDeviceOps()}, Logits(nullptr), kTokens, 0);
  EXPECT_EQ(plan.count_bytes() + plan.device_bytes() + plan.host_bytes(), 0);
  const LogitAdjuster adjuster = *LogitAdjuster::Create(plan, device_);
  EXPECT_TRUE(adjuster.NewBuffer(device_).ok());
  EXPECT_TRUE(adjuster.Check({}, kRows, kTokens).ok());
  const std::vector<ops::LogitBias> biases = {{0, 0, 1.0f}};
  EXPECT_FALSE(adjuster.Check({.biases = biases}, kRows, kTokens).ok());
}

}  // namespace
}  // namespace pagemill::program
