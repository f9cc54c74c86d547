#include "cc/grammar/transcript_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "cc/base/status.h"
#include "cc/step/token_mask.h"

namespace pagemill::grammar {
namespace {

// Text is 0 to 39, 40 is the end, 41 to 44 are others, timestamps come from 45 on.
constexpr int32_t kVocabSize = 111, kEnd = 40, kTimes = 45, kMaxFirst = 3;

TranscriptRules Rules(bool timestamps) {
  TranscriptRules rules = {.vocab_size = kVocabSize,
                           .end = kEnd,
                           .suppressed = {3, 41, 43},
                           .suppressed_first = {5, kEnd}};
  if (timestamps) rules.timestamp_begin = kTimes, rules.max_first_timestamp = kMaxFirst;
  return rules;
}

std::unique_ptr<step::TokenMatcher> Matcher(const TranscriptRules& rules,
                                            const std::vector<int32_t>& accepted = {}) {
  std::unique_ptr<step::TokenMatcher> matcher = *(*TranscriptMatchers(rules))();
  for (const int32_t token_id : accepted) EXPECT_TRUE(matcher->Accept(token_id)) << token_id;
  return matcher;
}

std::vector<int32_t> Allowed(step::TokenMatcher& matcher) {
  std::vector<uint32_t> mask(step::NumMaskWords(kVocabSize));
  EXPECT_TRUE(matcher.FillMask(mask).ok());
  std::vector<int32_t> allowed;
  for (int32_t token_id = 0; token_id < kVocabSize; ++token_id) {
    if (step::AllowsToken(mask, token_id)) allowed.push_back(token_id);
  }
  return allowed;
}

std::vector<int32_t> AllowedBehind(const std::vector<int32_t>& accepted) {
  return Allowed(*Matcher(Rules(true), accepted));
}

// Tokens of the range [begin, end) that are not suppressed.
std::vector<int32_t> Range(int32_t begin, int32_t end) {
  std::vector<int32_t> range;
  for (; begin < end; ++begin) {
    if (begin != 3 && begin != 41 && begin != 43) range.push_back(begin);
  }
  return range;
}

TEST(TranscriptMatcher, SuppressesTokens) {
  const auto matcher = Matcher(Rules(false));
  std::vector<int32_t> first;
  for (const int32_t token_id : Range(0, kVocabSize)) {
    if (token_id != 5 && token_id != kEnd) first.push_back(token_id);
  }
  EXPECT_EQ(Allowed(*matcher), first);
  EXPECT_FALSE(matcher->Accept(5));
  EXPECT_TRUE(matcher->Accept(7));
  EXPECT_EQ(Allowed(*matcher), Range(0, kVocabSize));
  EXPECT_TRUE(matcher->Accept(kEnd));
  EXPECT_EQ(Allowed(*matcher), std::vector<int32_t>{kEnd});
}

TEST(TranscriptMatcher, BeginsWithAnEarlyTimestamp) {
  EXPECT_EQ(AllowedBehind({}), Range(kTimes, kTimes + kMaxFirst + 1));
  TranscriptRules rules = Rules(true);
  rules.max_first_timestamp = INT32_MAX;
  EXPECT_EQ(Allowed(*Matcher(rules)), Range(kTimes, kVocabSize));
}

TEST(TranscriptMatcher, TimestampsComeInPairsAndNeverDecrease) {
  EXPECT_EQ(AllowedBehind({kTimes}), Range(0, kTimes)) << "text, or the end";
  std::vector<int32_t> any = Range(0, kTimes);
  for (int32_t token_id = kTimes + 3; token_id < kVocabSize; ++token_id) any.push_back(token_id);
  EXPECT_EQ(AllowedBehind({kTimes + 2, 7}), any) << "text, or a later timestamp";
  EXPECT_EQ(AllowedBehind({kTimes + 2, 7, 8}), any);
  std::vector<int32_t> second = {kEnd, 42, 44};
  for (int32_t token_id = kTimes + 9; token_id < kVocabSize; ++token_id) {
    second.push_back(token_id);
  }
  EXPECT_EQ(AllowedBehind({kTimes + 2, 7, kTimes + 9}), second);
  EXPECT_EQ(AllowedBehind({kTimes + 2, 7, kTimes + 9, kTimes + 9}), Range(0, kTimes));
  EXPECT_EQ(AllowedBehind({kTimes, 7, kVocabSize - 1, kVocabSize - 1, 8}), Range(0, kTimes));
}

TEST(TranscriptMatcher, AcceptsWhatItsMaskAllowsAndTakesItBack) {
  std::mt19937 rng(5);
  for (int walk = 0; walk < 200; ++walk) {
    const auto matcher = Matcher(Rules(walk % 2 == 0));
    std::vector<std::vector<int32_t>> seen;
    for (int step = 0; step < 12; ++step) {
      const std::vector<int32_t> allowed = Allowed(*matcher);
      ASSERT_FALSE(allowed.empty());
      for (int32_t token_id = -1; token_id <= kVocabSize; ++token_id) {
        const bool may_come = std::ranges::find(allowed, token_id) != allowed.end();
        ASSERT_EQ(matcher->Accept(token_id), may_come) << token_id;
        if (may_come) matcher->Rollback(1);
      }
      seen.push_back(allowed);
      ASSERT_TRUE(matcher->Accept(allowed[rng() % allowed.size()]));
    }
    const auto taken_back = static_cast<int32_t>(rng() % 12) + 1;
    matcher->Rollback(taken_back);
    EXPECT_EQ(Allowed(*matcher), seen[seen.size() - static_cast<size_t>(taken_back)]);
  }
}

TEST(TranscriptMatcher, RefusesTokensOutsideTheVocabulary) {
  std::vector<uint32_t> mask(1);
  EXPECT_FALSE(Matcher(Rules(true))->FillMask(mask).ok());
  const auto code = [](auto change) {
    TranscriptRules rules = Rules(true);
    change(rules);
    return TranscriptMatchers(rules).status().code();
  };
  const StatusCode refused = StatusCode::kInvalidArgument;
  EXPECT_EQ(code([](TranscriptRules& rules) { rules.end = kVocabSize; }), refused);
  EXPECT_EQ(code([](TranscriptRules& rules) { rules.suppressed = {-1}; }), refused);
  EXPECT_EQ(code([](TranscriptRules& rules) { rules.suppressed_first = {kVocabSize}; }), refused);
  EXPECT_EQ(code([](TranscriptRules& rules) { rules.timestamp_begin = kVocabSize; }), refused);
  EXPECT_EQ(code([](TranscriptRules& rules) { rules.timestamp_begin = kEnd; }), refused);
  EXPECT_EQ(code([](TranscriptRules& rules) { rules.max_first_timestamp = -1; }), refused);
}

}  // namespace
}  // namespace pagemill::grammar
