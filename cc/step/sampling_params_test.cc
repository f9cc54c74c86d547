#include "cc/step/sampling_params.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::step {
namespace {

constexpr int32_t kVocabSize = 1000;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Change = std::function<void(SamplingParams&)>;

Status ValidateWith(const Change& change, int32_t vocab_size = kVocabSize) {
  SamplingParams params;
  change(params);
  return params.Validate(vocab_size);
}

TEST(SamplingParams, DefaultsAreValid) { EXPECT_TRUE(SamplingParams().Validate(kVocabSize).ok()); }

TEST(SamplingParams, BordersAreValid) {
  const std::vector<Change> changes = {
      [](SamplingParams& p) { p.temperature = 0; },
      [](SamplingParams& p) { p.temperature = 1000; },
      [](SamplingParams& p) { p.top_p = 1; },
      [](SamplingParams& p) { p.top_p = 1e-6f; },
      [](SamplingParams& p) { p.min_p = 1; },
      [](SamplingParams& p) { p.presence_penalty = -2; },
      [](SamplingParams& p) { p.frequency_penalty = 2; },
      [](SamplingParams& p) { p.min_tokens = p.max_tokens; },
      [](SamplingParams& p) { p.max_tokens = 0, p.prompt_logprobs = 0; },
      [](SamplingParams& p) {
        p.logit_bias = {{0, -100.0f}, {kVocabSize - 1, 100.0f}};
      },
      [](SamplingParams& p) { p.logprobs = SamplingParams::kAllLogprobs; },
      [](SamplingParams& p) { p.prompt_logprobs = kVocabSize; },
      [](SamplingParams& p) { p.stop_token_ids = {kVocabSize - 1}; },
      [](SamplingParams& p) {
        p.logprobs = 0;
        p.logprob_token_ids = std::vector<int32_t>(SamplingParams::kMaxLogprobTokenIds, 999);
      },
      [](SamplingParams& p) { p.logprobs_mode = SamplingParams::kProcessedLogits; },
      [](SamplingParams& p) {
        p.repetition_max_pattern = p.repetition_min_pattern = SamplingParams::kMaxRepetitionPattern;
        p.repetition_min_count = 2;
      },
  };
  for (size_t i = 0; i < changes.size(); ++i) EXPECT_TRUE(ValidateWith(changes[i]).ok()) << i;
}

TEST(SamplingParams, RefusalNamesFieldAndValue) {
  struct Case {
    Change change;
    std::string field;
    std::string value;
  };
  const std::vector<Case> cases = {
      {[](SamplingParams& p) { p.temperature = -0.5f; }, "temperature", "-0.5"},
      {[](SamplingParams& p) { p.temperature = kNan; }, "temperature", "nan"},
      {[](SamplingParams& p) { p.temperature = kInfinity; }, "temperature", "inf"},
      {[](SamplingParams& p) { p.top_k = -3; }, "top_k", "-3"},
      {[](SamplingParams& p) { p.top_p = 0; }, "top_p", "0"},
      {[](SamplingParams& p) { p.top_p = 1.5f; }, "top_p", "1.5"},
      {[](SamplingParams& p) { p.min_p = -0.25f; }, "min_p", "-0.25"},
      {[](SamplingParams& p) { p.min_p = kNan; }, "min_p", "nan"},
      {[](SamplingParams& p) { p.presence_penalty = 2.5f; }, "presence_penalty", "2.5"},
      {[](SamplingParams& p) { p.frequency_penalty = -3; }, "frequency_penalty", "-3"},
      {[](SamplingParams& p) { p.repetition_penalty = 0; }, "repetition_penalty", "0"},
      {[](SamplingParams& p) { p.repetition_penalty = kInfinity; }, "repetition_penalty", "inf"},
      {[](SamplingParams& p) { p.max_tokens = 0; }, "max_tokens", "0"},
      {[](SamplingParams& p) { p.max_tokens = -7; }, "max_tokens", "-7"},
      {[](SamplingParams& p) { p.min_tokens = -1; }, "min_tokens", "-1"},
      {[](SamplingParams& p) { p.min_tokens = 17; }, "min_tokens", "17"},
      {[](SamplingParams& p) { p.logit_bias = {{-1, 0.0f}}; }, "logit_bias", "-1"},
      {[](SamplingParams& p) { p.logit_bias = {{kVocabSize, 0.0f}}; }, "logit_bias", "1000"},
      {[](SamplingParams& p) { p.logit_bias = {{5, 101.0f}}; }, "logit_bias", "101"},
      {[](SamplingParams& p) { p.logit_bias = {{5, kNan}}; }, "logit_bias", "nan"},
      {[](SamplingParams& p) { p.eos_token_ids = {-2}; }, "eos_token_ids", "-2"},
      {[](SamplingParams& p) { p.stop_token_ids = {3, 1000}; }, "stop_token_ids", "1000"},
      {[](SamplingParams& p) { p.logprobs = -3; }, "logprobs", "-3"},
      {[](SamplingParams& p) { p.prompt_logprobs = 1001; }, "prompt_logprobs", "1001"},
      {[](SamplingParams& p) { p.logprob_token_ids = {1}; }, "logprobs", "-1"},
      {[](SamplingParams& p) { p.logprobs = 0, p.logprob_token_ids = {1, 1000}; },
       "logprob_token_ids", "1000"},
      {[](SamplingParams& p) {
         p.logprobs = 0;
         p.logprob_token_ids.resize(SamplingParams::kMaxLogprobTokenIds + 1);
       },
       "logprob_token_ids", "129"},
      {[](SamplingParams& p) { p.logprobs_mode = 4; }, "logprobs_mode", "4"},
      {[](SamplingParams& p) { p.repetition_max_pattern = 1025; }, "repetition_max_pattern",
       "1025"},
      {[](SamplingParams& p) { p.repetition_min_pattern = 1; }, "repetition_min_pattern", "1"},
      {[](SamplingParams& p) { p.repetition_max_pattern = 1, p.repetition_min_count = 1; },
       "repetition_min_count", "1"},
      {[](SamplingParams& p) { p.timestamp_begin = 1000; }, "timestamp_begin", "1000"},
      {[](SamplingParams& p) { p.timestamp_begin = -2; }, "timestamp_begin", "-2"},
  };
  for (const Case& c : cases) {
    const Status status = ValidateWith(c.change);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.field;
    EXPECT_NE(status.message().find(c.field), std::string::npos) << status.message();
    EXPECT_NE(status.message().find(c.value), std::string::npos) << status.message();
  }
}

TEST(SamplingParams, UnknownVocabularyChecksOnlySigns) {
  EXPECT_TRUE(ValidateWith([](SamplingParams& p) { p.stop_token_ids = {1 << 30}; }, 0).ok());
  EXPECT_FALSE(ValidateWith([](SamplingParams& p) { p.stop_token_ids = {-1}; }, 0).ok());
}

TEST(SamplingParams, GreedyBelowThreshold) {
  SamplingParams params;
  EXPECT_FALSE(params.greedy());
  params.temperature = 1e-6f;
  EXPECT_TRUE(params.greedy());
}

// Converts to every type: counts the members of an aggregate.
struct Anything {
  template <typename T>
  operator T() const;
};

template <typename T, typename... Given>
constexpr size_t NumMembers() {
  if constexpr (requires { T{Given{}..., Anything{}}; }) {
    return NumMembers<T, Given..., Anything>();
  } else {
    return sizeof...(Given);
  }
}

TEST(SamplingParams, EveryMemberIsVisited) {
  size_t num_visited = 0;
  SamplingParams::Visit([&](const char*, auto, const FieldInfo&) { ++num_visited; });
  EXPECT_EQ(num_visited, NumMembers<SamplingParams>());
}

}  // namespace
}  // namespace pagemill::step
