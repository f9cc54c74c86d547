#include "cc/sampling/penalties.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "cc/ops/sample/row_adjustments.h"
#include "cc/sampling/step_adjustments.h"

namespace pagemill::sampling {
namespace {

constexpr int32_t kVocab = 100;

step::Request RequestOf(std::vector<int32_t> prompt, float repetition, float frequency,
                        float presence) {
  step::Request request;
  request.prompt_token_ids = std::move(prompt);
  request.sampling.repetition_penalty = repetition;
  request.sampling.frequency_penalty = frequency;
  request.sampling.presence_penalty = presence;
  return request;
}

std::vector<float> Row() {
  std::vector<float> row(kVocab);
  for (int32_t id = 0; id < kVocab; ++id) row[id] = static_cast<float>(id % 7 - 3);
  return row;
}

TEST(PenaltiesTest, ChangeOnlyTokensThatOccurred) {
  Penalties penalties;
  penalties.Start(RequestOf({1, 6, 1, kVocab, -1}, 1.5f, 0.25f, 0.5f), kVocab);
  for (int32_t id : {6, 9, 9}) penalties.AddOutput(id);
  EXPECT_TRUE(penalties.active());
  const std::vector<float> row = Row();
  std::vector<float> changed = row;
  penalties.Apply(changed);
  EXPECT_EQ(changed[1], -2 * 1.5f) << "twice in the prompt: once";
  EXPECT_EQ(changed[6], 3 / 1.5f - 0.75f) << "in prompt and output: once each";
  EXPECT_EQ(changed[9], -1 * 1.5f - 1.0f) << "twice in the output";
  for (int32_t id = 0; id < kVocab; ++id) {
    if (id == 1 || id == 6 || id == 9) continue;
    EXPECT_EQ(changed[id], row[id]) << id;
  }
}

TEST(PenaltiesTest, PlaceholdersOfMediaDidNotOccur) {
  step::Request request = RequestOf({1, 2, 2, 5, 2, 2}, 1.5f, 0.0f, 0.0f);
  request.media = {{.content_id = "a", .first_token = 1, .num_tokens = 2},
                   {.content_id = "b", .first_token = 4, .num_tokens = 2}};
  Penalties penalties;
  penalties.Start(request, kVocab);
  const std::vector<float> row = Row();
  std::vector<float> changed = row;
  penalties.Apply(changed);
  EXPECT_EQ(changed[2], row[2]);
  EXPECT_EQ(changed[1], -2 * 1.5f);
  EXPECT_EQ(changed[5], 2 / 1.5f);
}

TEST(PenaltiesTest, FrequencyAndPresenceAreOfOutputsOnly) {
  Penalties penalties;
  penalties.Start(RequestOf({1, 2, 3}, 1.0f, 1.0f, 1.0f), kVocab);
  std::vector<float> changed = Row();
  penalties.Apply(changed);
  EXPECT_EQ(changed, Row());
}

TEST(PenaltiesTest, ARequestWithoutThemChangesNothing) {
  Penalties penalties;
  penalties.Start(RequestOf({1, 2}, 1.0f, 0.0f, 0.0f), kVocab);
  penalties.AddOutput(5);
  EXPECT_FALSE(penalties.active());
  std::vector<float> changed = Row();
  penalties.Apply(changed);
  EXPECT_EQ(changed, Row());
}

using Count = std::tuple<int32_t, int32_t, int32_t>;  // slot, token, amount

std::vector<Count> CountsOf(const StepAdjustments& step) {
  std::vector<Count> counts;
  for (const ops::TokenCount& c : step.counts) counts.emplace_back(c.slot, c.token_id, c.amount);
  std::ranges::sort(counts);
  return counts;
}

TEST(PenaltiesTest, WhatAnExecutorHasNotCountedIsListed) {
  Penalties penalties;
  penalties.Start(RequestOf({7, 6, 7}, 1.5f, 0, 0), kVocab);
  penalties.AddOutput(6);
  StepAdjustments step;
  penalties.CountUpTo(1, /*slot=*/4, /*input=*/9, &step);
  EXPECT_EQ(step.cleared_slots, std::vector{4});
  EXPECT_EQ(CountsOf(step), (std::vector<Count>{{4, 6, 2}, {4, 7, 1}}));
  // Two more, which the host does not know yet, one a step.
  for (int32_t num_outputs : {2, 3}) {
    step.Clear();
    penalties.CountUpTo(num_outputs, 4, 9, &step);
    EXPECT_TRUE(step.cleared_slots.empty());
    EXPECT_EQ(CountsOf(step), (std::vector<Count>{{4, ops::TokenOfInput(9), 2}}));
  }
  step.Clear();
  penalties.CountUpTo(3, 4, 9, &step);
  EXPECT_TRUE(step.cleared_slots.empty() && step.counts.empty());
}

TEST(PenaltiesTest, OutputsThatAnExecutorLacksAreListedIfTheyAreFew) {
  Penalties penalties;
  penalties.Start(RequestOf({7}, 1.0f, 0, 0.5f), kVocab);
  StepAdjustments step;
  penalties.CountUpTo(0, 1, 0, &step);
  EXPECT_EQ(step.cleared_slots, std::vector{1});
  EXPECT_TRUE(step.counts.empty()) << "only repetition is of prompts";
  // Steps that the executor has not sampled, or drafts that were accepted.
  for (int32_t id : {3, 9, 3}) penalties.AddOutput(id);
  step.Clear();
  penalties.CountUpTo(3, 1, 0, &step);
  EXPECT_TRUE(step.cleared_slots.empty());
  EXPECT_EQ(CountsOf(step), (std::vector<Count>{{1, 3, 4}, {1, 9, 2}}));
  for (int32_t id : {9, 5}) penalties.AddOutput(id);
  step.Clear();
  penalties.CountUpTo(5, 1, 0, &step);
  EXPECT_EQ(CountsOf(step), (std::vector<Count>{{1, 5, 2}, {1, 9, 2}})) << "of the last two";
  // Many are counted anew.
  for (int32_t i = 0; i < 40; ++i) penalties.AddOutput(i % 2);
  step.Clear();
  penalties.CountUpTo(45, 1, 0, &step);
  EXPECT_EQ(step.cleared_slots, std::vector{1});
  EXPECT_EQ(CountsOf(step),
            (std::vector<Count>{{1, 0, 40}, {1, 1, 40}, {1, 3, 4}, {1, 5, 2}, {1, 9, 4}}));
  // A request that is resumed counts anew as well.
  penalties.Start(RequestOf({7}, 1.0f, 0, 0.5f), kVocab);
  penalties.AddOutput(5);
  step.Clear();
  penalties.CountUpTo(1, 2, 0, &step);
  EXPECT_EQ(step.cleared_slots, std::vector{2});
  EXPECT_EQ(CountsOf(step), (std::vector<Count>{{2, 5, 2}}));
}

}  // namespace
}  // namespace pagemill::sampling
