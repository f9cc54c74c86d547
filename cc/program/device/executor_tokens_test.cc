// Device executor: tokens that are found, drawn and scored on the device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "cc/ops/sample/row_adjustments.h"
#include "cc/ops/sample/row_draw.h"
#include "cc/ops/sample/sample.h"
#include "cc/ops/sample/token_scores.h"
#include "cc/program/device/device_executor.h"
#include "cc/program/device/testing/executor_steps.h"
#include "cc/program/testing/tiny_llama.h"

namespace pagemill::program {
namespace {

// The parameter is max_graph_tokens.
class DeviceExecutorTokens : public ::testing::TestWithParam<int32_t> {};

std::vector<int32_t> Columns(const ExecutorOutput& output) {
  std::vector<int32_t> columns;
  for (const ops::RowMaximum& maximum : output.maxima) columns.push_back(maximum.column);
  return columns;
}

// The largest token column of each row.
std::vector<int32_t> Largest(const std::vector<float>& logits) {
  std::vector<int32_t> largest;
  for (auto row = logits.begin(); row != logits.end(); row += kVocab) {
    largest.push_back(static_cast<int32_t>(std::max_element(row, row + kTokens) - row));
  }
  return largest;
}

// Each step reads its tokens from the previous one, which is still in flight.
TEST_P(DeviceExecutorTokens, AStepReadsTheTokensOfTheOneBefore) {
  const std::string text = testing::TinyLlamaText({.seed = 6});
  const auto reference = OnCpu(text);
  TestDevice device;
  auto executor = OnDevice(text, device,
                           {.max_blocks = kBlocks,
                            .max_graph_tokens = GetParam(),
                            .token_columns = kTokens});
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  const std::vector<BatchBuilder> steps = Steps(/*requests=*/3, /*decodes=*/4);
  const std::vector<int32_t> rows = {TokenOfRow(0), TokenOfRow(1), TokenOfRow(2)};
  std::vector<std::vector<int32_t>> expected;
  for (const BatchBuilder& step : steps) {
    ops::StepBatch batch = step.view();
    if (!expected.empty()) batch.token_ids = expected.back().data();
    expected.push_back(Largest(MustRun(*reference, batch)));
  }
  device.Hold();
  ExecutorOutput output;
  for (size_t i = 0; i < steps.size(); ++i) {
    ops::StepBatch batch = steps[i].view();
    batch.argmax_columns = kTokens;
    if (i > 0) batch.token_ids = rows.data();
    ASSERT_TRUE((*executor)->Enqueue(batch).ok());
    if (i == 0) continue;
    device.Release();
    ASSERT_TRUE((*executor)->Collect(&output).ok());
    EXPECT_EQ(Columns(output), expected[i - 1]) << "step " << i - 1;
    EXPECT_EQ(output.logits().rank, 0) << "only maxima come to the host";
  }
  // A step that requests logits may read tokens, and produces none.
  ops::StepBatch last = steps.back().view();
  last.token_ids = rows.data();
  ASSERT_TRUE((*executor)->Enqueue(last).ok());
  EXPECT_EQ((*executor)->Collect(&output).code(), StatusCode::kOk);
  EXPECT_EQ(Columns(output), expected.back());
  ASSERT_TRUE((*executor)->Collect(&output).ok());
  EXPECT_EQ(output.logits().shape[0], 3);
  EXPECT_EQ((*executor)->Enqueue(last).message(),
            "token 0 of a step is row 0 of the step before, which has found 0");
}

constexpr size_t kMaskWords = 3;  // bits for kTokens

// The draws of step `step`: row 0 is drawn, row 1 takes the largest, row 2 is drawn from few. If
// masked, rows 0 and 1 have masks of their own.
std::vector<ops::RowDraw> Draws(int32_t step, bool masked) {
  std::vector<ops::RowDraw> draws(3);
  draws[0] = {.temperature = 3.0f, .position = step};
  draws[2] = {.temperature = 5.0f, .top_p = 0.9f, .top_k = 20, .position = step};
  for (ops::RowDraw& draw : draws) draw.SetSeed(1ull << 40 | 5);
  if (masked) draws[0].mask = 1, draws[1].mask = 0;
  return draws;
}

// The first allows tokens 4, 37 and 64, the second every other token.
std::vector<uint32_t> Masks(bool masked) {
  if (!masked) return {};
  return {1u << 4, 1u << 5, 1u, 0x55555555u, 0x55555555u, 0x55555555u};
}

// Rows 0 and 2 have penalties, of tokens that are counted in slots 5 and 4: some of a prompt, then
// one in each step; row 2 also of tokens of the step, as if they were drafts in front of it. Row 1
// has a bias, which its mask excludes.
struct Adjustments {
  Adjustments(int32_t step, bool adjusted) {
    if (!adjusted) return;
    biases = {{1, 6, 30.0f}, {1, 5, 0.5f}, {0, 40, -INFINITY}};
    penalties = {{.row = 2,
                  .slot = 4,
                  .repetition = 1.5f,
                  .frequency = 0.5f,
                  .first_draft = 1,
                  .num_drafts = 2},
                 {.row = 0, .slot = 5, .repetition = 3.0f, .presence = 2.0f}};
    if (step == 0) cleared_slots = {4, 5};
    for (int32_t token = 0; step == 0 && token < kTokens; token += 3) {
      counts.push_back({token % 2 == 0 ? 4 : 5, token, ops::kInPrompt});
    }
    if (step == 0) return;
    counts = {{4, ops::TokenOfInput(2), ops::kOneOutput},
              {5, ops::TokenOfInput(0), ops::kOneOutput}};
  }
  std::vector<int32_t> cleared_slots;
  std::vector<ops::TokenCount> counts;
  std::vector<ops::LogitBias> biases;
  std::vector<ops::RowPenalties> penalties;
};

// What a host that has counted `ids` does to the logits.
void Adjust(const Adjustments& step, const std::vector<int32_t>& ids,
            std::map<int32_t, std::vector<int32_t>>* counted, std::vector<float>* logits) {
  const auto logit = [&](int32_t row, int32_t token) -> float& {
    return (*logits)[static_cast<size_t>(row * kVocab + token)];
  };
  for (const int32_t slot : step.cleared_slots) (*counted)[slot].assign(kTokens, 0);
  for (const ops::TokenCount& count : step.counts) {
    const int32_t token =
        count.token_id >= 0 ? count.token_id : ids[static_cast<size_t>(-1 - count.token_id)];
    (*counted)[count.slot][static_cast<size_t>(token)] += count.amount;
  }
  for (const ops::LogitBias& bias : step.biases) logit(bias.row, bias.token_id) += bias.bias;
  for (const ops::RowPenalties& row : step.penalties) {
    for (int32_t token = 0; token < kTokens; ++token) {
      float& x = logit(row.row, token);
      const int32_t in_slot = (*counted)[row.slot][static_cast<size_t>(token)];
      x = ops::PenalizedLogit(x, ops::CountedForRow(in_slot, token, ids.data(), row), row);
    }
  }
}

// The tokens that a host would choose from the logits.
std::vector<int32_t> Chosen(std::vector<float> logits, const std::vector<ops::RowDraw>& draws,
                            const std::vector<uint32_t>& masks) {
  const ops::RowPasses& passes = ops::ChooseRowPasses({});
  std::vector<ops::Candidate> storage(kTokens);
  std::vector<int32_t> chosen;
  for (size_t row = 0; row < draws.size(); ++row) {
    const std::span<float> tokens = std::span(logits).subspan(row * kVocab, kTokens);
    for (size_t t = 0; draws[row].mask >= 0 && t < tokens.size(); ++t) {
      const size_t word = static_cast<size_t>(draws[row].mask) * kMaskWords + t / 32;
      if ((masks[word] >> t % 32 & 1u) == 0) tokens[t] = -INFINITY;
    }
    chosen.push_back(
        ops::DrawRow(passes, tokens, ops::ArgMax(passes, tokens), draws[row], storage));
  }
  return chosen;
}

class DeviceExecutorDraws : public ::testing::TestWithParam<std::tuple<int32_t, bool, bool>> {};

// Each step reads its tokens from the previous one, which chooses them after its graph and is still
// in flight.
TEST_P(DeviceExecutorDraws, AStepReadsTheTokensThatTheOneBeforeDraws) {
  const auto& [max_graph_tokens, masked, adjusted] = GetParam();
  const std::string text = testing::TinyLlamaText({.seed = 6});
  const auto reference = OnCpu(text);
  TestDevice device;
  auto executor = OnDevice(text, device,
                           {.max_blocks = kBlocks,
                            .max_steps_in_flight = 3,
                            .max_graph_tokens = max_graph_tokens,
                            .token_columns = kTokens});
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  EXPECT_TRUE((*executor)->samples());
  const std::vector<BatchBuilder> steps = Steps(/*requests=*/3, /*decodes=*/4);
  const std::vector<int32_t> rows = {TokenOfRow(0), TokenOfRow(1), TokenOfRow(2)};
  const std::vector<uint32_t> masks = Masks(masked);
  std::vector<std::vector<int32_t>> expected;
  std::map<int32_t, std::vector<int32_t>> counted;
  int32_t different = 0;  // draws that differ from the argmax
  for (size_t i = 0; i < steps.size(); ++i) {
    ops::StepBatch batch = steps[i].view();
    if (i > 0) batch.token_ids = expected.back().data();
    std::vector<float> logits = MustRun(*reference, batch);
    const auto step = static_cast<int32_t>(i);
    const std::vector<int32_t> ids(batch.token_ids, batch.token_ids + batch.num_tokens);
    if (adjusted) Adjust({step, true}, ids, &counted, &logits);
    expected.push_back(Chosen(logits, Draws(step, masked), masks));
    different += expected.back() != Largest(logits) ? 1 : 0;
  }
  EXPECT_GT(different, 3);
  device.Hold();
  ExecutorOutput output;
  const auto collect = [&](size_t step) {
    device.Release();
    ASSERT_TRUE((*executor)->Collect(&output).ok());
    EXPECT_EQ(Columns(output), expected[step]) << "step " << step;
    EXPECT_EQ(output.logits().rank, 0) << "only tokens come to the host";
  };
  for (size_t i = 0; i < steps.size() + 2; ++i) {
    if (i < steps.size()) {
      ops::StepBatch batch = steps[i].view();
      batch.argmax_columns = kTokens;
      if (i > 0) batch.token_ids = rows.data();
      ASSERT_TRUE((*executor)->Enqueue(batch).ok());
    }
    // An older step is collected before or after the newest is sampled from.
    const bool collects_first = i % 2 == 1;
    if (i >= 2 && collects_first) collect(i - 2);
    if (i < steps.size()) {
      const std::vector<ops::RowDraw> draws = Draws(static_cast<int32_t>(i), masked);
      const Adjustments with(static_cast<int32_t>(i), adjusted);
      ASSERT_TRUE((*executor)
                      ->Sample({draws, masks, with.cleared_slots, with.counts, with.biases,
                                with.penalties})
                      .ok());
    }
    if (i >= 2 && !collects_first) collect(i - 2);
  }
  EXPECT_EQ(device.num_pageable_copies(), 0);
}

INSTANTIATE_TEST_SUITE_P(GraphsMasksAndPenalties, DeviceExecutorDraws,
                         ::testing::Combine(::testing::Values(0, kGraphTokens), ::testing::Bool(),
                                            ::testing::Bool()));

TEST(DeviceExecutor, ARowWhoseMaskAllowsNothingHasNoToken) {
  TestDevice device;
  auto executor = *OnDevice(testing::TinyLlamaText({}), device,
                            {.max_blocks = kBlocks, .token_columns = kTokens});
  BatchBuilder one(kBlockSize, kBlocks);
  one.Add(0, 0, {1});
  ops::StepBatch batch = one.view();
  batch.argmax_columns = kTokens;
  const std::vector<ops::RowDraw> draws = {{.temperature = 1.0f, .mask = 0}};
  const std::vector<uint32_t> masks = {0, 0, 0xffff0000u};  // bits beyond the tokens
  ASSERT_TRUE(executor->Enqueue(batch).ok());
  ASSERT_TRUE(executor->Sample({.rows = draws, .masks = masks}).ok());
  ExecutorOutput output;
  ASSERT_TRUE(executor->Collect(&output).ok());
  EXPECT_EQ(output.maxima[0].column, -1);
  EXPECT_EQ(output.maxima[0].logit, -INFINITY);
  ASSERT_TRUE(executor->Enqueue(batch).ok());
  EXPECT_EQ(executor->Sample({.rows = draws}).message(),
            "the draws of a step do not fit its 0 token masks");
  const std::vector<ops::RowDraw> greedy(1);
  const std::vector<ops::ScoredRow> scored = {{.row = 1}};
  EXPECT_EQ(executor->Sample({.rows = greedy, .scored = scored}).code(),
            StatusCode::kInvalidArgument);
}

// Log probabilities are those of the tokens' logits from before masks, and of the step that wants
// them.
TEST(DeviceExecutor, ScoresTokensByLogitsThatNothingHasChanged) {
  TestDevice device;
  auto executor = *OnDevice(
      testing::TinyLlamaText({}), device,
      {.max_blocks = kBlocks, .max_steps_in_flight = 1, .token_columns = kTokens});
  BatchBuilder one(kBlockSize, kBlocks);
  one.Add(0, 0, {1});
  ops::StepBatch batch = one.view();
  ExecutorOutput output;
  ASSERT_TRUE(executor->Execute(batch, &output).ok());
  const float* row = output.logits().Row<const float>(0);
  const std::vector<float> logits(row, row + kTokens);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit});
  batch.argmax_columns = kTokens;
  const std::vector<ops::RowDraw> draws = {{.temperature = 1.0f, .mask = 0}};
  const std::vector<uint32_t> masks = {0x55555555u, 0x55555555u, 0x5555u};
  const std::vector<ops::ScoredRow> scored = {{.row = 0, .num_top = 20}};
  ASSERT_TRUE(executor->Enqueue(batch).ok());
  ASSERT_TRUE(executor->Sample({.rows = draws, .masks = masks, .scored = scored}).ok());
  ASSERT_TRUE(executor->Collect(&output).ok());
  ASSERT_EQ(output.scores.size(), 1u);
  const ops::TokenScores scores = output.scores[0];
  const auto token = static_cast<size_t>(output.maxima[0].column);
  EXPECT_EQ(token % 2, 0u);
  EXPECT_NEAR(scores.logprob, logits[token] - std::log(sum), 1e-5);
  bool has_odd = false;
  for (const int32_t top : scores.top_ids) has_odd = has_odd || top % 2 == 1;
  EXPECT_TRUE(has_odd) << "tokens that the mask excludes are listed";
  // The next step, which is not sampled from, and one that wants none.
  ASSERT_TRUE(executor->Execute(batch, &output).ok());
  EXPECT_EQ(output.maxima.size(), 1u);
  EXPECT_TRUE(output.scores.empty());
  ASSERT_TRUE(executor->Enqueue(batch).ok());
  ASSERT_TRUE(executor->Sample({.rows = draws, .masks = masks}).ok());
  ASSERT_TRUE(executor->Collect(&output).ok());
  EXPECT_TRUE(output.scores.empty());
}

INSTANTIATE_TEST_SUITE_P(Graphs, DeviceExecutorTokens, ::testing::Values(0, kGraphTokens));

}  // namespace
}  // namespace pagemill::program
