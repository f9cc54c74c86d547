#include "cc/grammar/reasoning_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/step/token_mask.h"

namespace pagemill::grammar {
namespace {

constexpr int32_t kOpener = 10;
constexpr int32_t kCloser = 11;
constexpr int32_t kVocabSize = 32;  // all bits of a mask's word

// The tokens 1, 2, 3, in this order.
class Counting final : public step::TokenMatcher {
 public:
  Status FillMask(std::span<uint32_t> mask) override {
    std::ranges::fill(mask, 0u);
    step::AllowToken(mask, count_ + 1);
    return OkStatus();
  }
  bool Accept(int32_t token_id) override {
    if (token_id != count_ + 1) return false;
    ++count_;
    return true;
  }
  void Rollback(int32_t num_tokens) override { count_ -= num_tokens; }
  void AppendForced(size_t, std::vector<int32_t>* token_ids) override {
    token_ids->push_back(count_ + 1);
  }

 private:
  int32_t count_ = 0;
};

std::unique_ptr<step::TokenMatcher> Behind(bool begins_within) {
  const auto factory = BehindReasoning(
      []() -> StatusOr<std::unique_ptr<step::TokenMatcher>> {
        return std::unique_ptr<step::TokenMatcher>(new Counting());
      },
      {.openers = {kOpener}, .closers = {kCloser}, .begins_within = begins_within});
  return *factory();
}

std::vector<int32_t> Allowed(step::TokenMatcher& matcher) {
  std::vector<uint32_t> mask(1);
  EXPECT_TRUE(matcher.FillMask(mask).ok());
  std::vector<int32_t> allowed;
  for (int32_t token = 0; token < kVocabSize; ++token) {
    if (step::AllowsToken(mask, token)) allowed.push_back(token);
  }
  return allowed;
}

bool IsForced(step::TokenMatcher& matcher) {
  std::vector<int32_t> forced;
  matcher.AppendForced(4, &forced);
  return !forced.empty();
}

TEST(ReasoningMatcherTest, WhatComesBeforeTheCloserIsFree) {
  const auto matcher = Behind(true);
  EXPECT_EQ(Allowed(*matcher).size(), size_t{kVocabSize});
  EXPECT_FALSE(IsForced(*matcher));
  ASSERT_TRUE(matcher->Accept(7) && matcher->Accept(kOpener) && matcher->Accept(kCloser));
  EXPECT_EQ(Allowed(*matcher), (std::vector<int32_t>{1}));
  EXPECT_TRUE(IsForced(*matcher));
  EXPECT_FALSE(matcher->Accept(kOpener));
  EXPECT_TRUE(matcher->Accept(1));
}

TEST(ReasoningMatcherTest, AnOutputMayOpenReasoningFirst) {
  const auto matcher = Behind(false);
  EXPECT_EQ(Allowed(*matcher), (std::vector<int32_t>{1, kOpener}));
  ASSERT_TRUE(matcher->Accept(kOpener) && matcher->Accept(9) && matcher->Accept(kCloser));
  EXPECT_EQ(Allowed(*matcher), (std::vector<int32_t>{1}));
  const auto without = Behind(false);
  ASSERT_TRUE(without->Accept(1));
  EXPECT_FALSE(without->Accept(kOpener));
}

TEST(ReasoningMatcherTest, RollsBackAcrossTheCloser) {
  const auto matcher = Behind(false);
  const std::vector<int32_t> tokens = {kOpener, 5, kCloser, 1, 2};
  for (const int32_t token : tokens) ASSERT_TRUE(matcher->Accept(token));
  matcher->Rollback(1);
  EXPECT_EQ(Allowed(*matcher), (std::vector<int32_t>{2}));
  matcher->Rollback(2);
  EXPECT_EQ(Allowed(*matcher).size(), size_t{kVocabSize});
  ASSERT_TRUE(matcher->Accept(kCloser));
  EXPECT_EQ(Allowed(*matcher), (std::vector<int32_t>{1}));
  matcher->Rollback(3);
  EXPECT_EQ(Allowed(*matcher), (std::vector<int32_t>{1, kOpener}));
}

}  // namespace
}  // namespace pagemill::grammar
