#include "cc/scheduler/repetition_detector.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

step::SamplingParams Params(int32_t max_pattern, int32_t min_pattern, int32_t min_count) {
  step::SamplingParams params;
  params.repetition_max_pattern = max_pattern;
  params.repetition_min_pattern = min_pattern;
  params.repetition_min_count = min_count;
  return params;
}

// Number of tokens of `output` up to its first repetition; 0 = it has none.
size_t FirstRepetition(const step::SamplingParams& params, std::span<const int32_t> output) {
  RepetitionDetector detector(params);
  for (size_t size = 1; size <= output.size(); ++size) {
    if (detector.Add(output.first(size))) return size;
  }
  return 0;
}

// The rule, from the text alone.
bool EndsWithRepetition(const step::SamplingParams& params, std::span<const int32_t> output) {
  const auto size = static_cast<int64_t>(output.size());
  for (int64_t length = std::max(params.repetition_min_pattern, 1);
       length <= params.repetition_max_pattern; ++length) {
    const int64_t num_tokens = length * params.repetition_min_count;
    if (num_tokens > size) break;
    bool repeats = true;
    for (int64_t i = size - num_tokens + length; i < size; ++i) {
      repeats &= output[static_cast<size_t>(i)] == output[static_cast<size_t>(i - length)];
    }
    if (repeats) return true;
  }
  return false;
}

TEST(RepetitionDetector, FindsPatternsOfTheLengthsThatAreAskedFor) {
  const std::vector<int32_t> pairs = {7, 1, 2, 1, 2, 1, 2, 1, 2};
  EXPECT_EQ(FirstRepetition(Params(4, 0, 2), pairs), 5u);
  EXPECT_EQ(FirstRepetition(Params(4, 0, 3), pairs), 7u);
  EXPECT_EQ(FirstRepetition(Params(1, 0, 2), pairs), 0u);
  EXPECT_EQ(FirstRepetition(Params(4, 3, 2), pairs), 9u);  // 1 2 1 2 is a pattern, too
  EXPECT_EQ(FirstRepetition(Params(3, 3, 2), pairs), 0u);
  const std::vector<int32_t> same(12, 5);
  EXPECT_EQ(FirstRepetition(Params(1, 1, 4), same), 4u);
  EXPECT_EQ(FirstRepetition(Params(3, 3, 4), same), 12u);
  EXPECT_EQ(FirstRepetition(Params(1024, 0, 13), same), 0u);
}

TEST(RepetitionDetector, APatternThatAnotherTokenInterruptedStartsAgain) {
  const std::vector<int32_t> output = {5, 5, 5, 8, 5, 5, 5, 5};
  EXPECT_EQ(FirstRepetition(Params(1, 1, 4), output), 8u);
}

TEST(RepetitionDetector, ALargeNumberOfRepetitionsDoesNotOverflow) {
  const std::vector<int32_t> same(3000, 5);
  EXPECT_EQ(FirstRepetition(Params(1024, 0, INT32_MAX), same), 0u);
}

TEST(RepetitionDetector, AgreesWithTheRuleForRandomOutputs) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const auto max_pattern = static_cast<int32_t>(1 + random() % 6);
    const auto min_pattern =
        static_cast<int32_t>(random() % static_cast<uint32_t>(max_pattern + 1));
    const auto params = Params(max_pattern, min_pattern, static_cast<int32_t>(2 + random() % 3));
    RepetitionDetector detector(params);
    for (int turn = 0; turn < 2; ++turn) {
      std::vector<int32_t> output;
      while (output.size() < 60) {
        output.push_back(static_cast<int32_t>(random() % 2));
        EXPECT_EQ(detector.Add(output), EndsWithRepetition(params, output)) << output.size();
      }
      detector.Restart();
    }
  }
}

}  // namespace
}  // namespace pagemill::scheduler
