#include "cc/sampling/penalties.h"

#include <gtest/gtest.h>

#include <vector>

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

}  // namespace
}  // namespace pagemill::sampling
