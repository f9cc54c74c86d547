#include "cc/sampling/draft_masks.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "cc/sampling/testing/bracket_matcher.h"
#include "cc/step/token_mask.h"

namespace pagemill::sampling {
namespace {

using step::AllowsToken;
using step::NumMaskWords;
using step::TokenMatcher;

const std::vector<std::string> kVocabulary = {"(", ")",  "[",  "]",   "{",    "}", "x",
                                              "",  "()", "([", "x)]", "</s>", "}"};
constexpr int32_t kEos = 11;
constexpr int32_t kDepth = 3;

BracketMatcher MakeMatcher() {
  return BracketMatcher({.vocabulary = kVocabulary, .eos_token_id = kEos, .max_depth = kDepth});
}

// The open brackets of `text`, found by removing pairs until none is left.
std::string Unmatched(std::string text) {
  std::erase(text, 'x');
  for (size_t at = 0; at != std::string::npos;) {
    at = std::string::npos;
    for (const char* pair : {"()", "[]", "{}"}) at = std::min(at, text.find(pair));
    if (at != std::string::npos) text.erase(at, 2);
  }
  return text;
}

// True if every prefix of the text has at most kDepth open brackets and no unmatched closing ones.
bool IsValid(const std::string& text) {
  for (size_t n = 1; n <= text.size(); ++n) {
    const std::string open = Unmatched(text.substr(0, n));
    if (open.size() > kDepth || open.find_first_of(")]}") != std::string::npos) return false;
  }
  return true;
}

std::string TextOf(const std::vector<int32_t>& tokens) {
  std::string text;
  for (int32_t token : tokens) text += token == kEos ? "" : kVocabulary[token];
  return text;
}

bool MayFollow(const std::vector<int32_t>& tokens, int32_t next) {
  const bool ended = !tokens.empty() && tokens.back() == kEos;
  if (next == kEos) return Unmatched(TextOf(tokens)).empty();
  return !ended && !kVocabulary[next].empty() && IsValid(TextOf(tokens) + kVocabulary[next]);
}

std::vector<uint32_t> MaskOf(TokenMatcher& matcher) {
  std::vector<uint32_t> mask(NumMaskWords(static_cast<int32_t>(kVocabulary.size())), ~0u);
  EXPECT_TRUE(matcher.FillMask(mask).ok());
  return mask;
}

TEST(BracketMatcherTest, AgreesWithTheWholeTextAfterAnyCalls) {
  std::mt19937 rng(3);
  const auto vocab_size = static_cast<int32_t>(kVocabulary.size());
  for (int round = 0; round < 60; ++round) {
    BracketMatcher matcher = MakeMatcher();
    std::vector<int32_t> tokens;
    for (int call = 0; call < 40; ++call) {
      const std::vector<uint32_t> mask = MaskOf(matcher);
      for (int32_t id = 0; id < vocab_size; ++id) {
        ASSERT_EQ(AllowsToken(mask, id), MayFollow(tokens, id)) << TextOf(tokens) << " + " << id;
      }
      if (rng() % 5 == 0) {
        const size_t back = rng() % (tokens.size() + 1);
        matcher.Rollback(static_cast<int32_t>(back));
        tokens.resize(tokens.size() - back);
        continue;
      }
      const auto token = static_cast<int32_t>(rng() % kVocabulary.size());
      const bool may_follow = MayFollow(tokens, token);
      ASSERT_EQ(matcher.Accept(token), may_follow);
      if (may_follow) tokens.push_back(token);
    }
  }
  BracketMatcher matcher = MakeMatcher();
  EXPECT_FALSE(matcher.Accept(-1));
  EXPECT_FALSE(matcher.Accept(vocab_size));
}

TEST(FillDraftMasksTest, FillsARowBeforeEachDraftAndAfterTheLast) {
  std::mt19937 rng(4);
  const size_t words = NumMaskWords(static_cast<int32_t>(kVocabulary.size()));
  int32_t refused = 0, all = 0;
  for (int round = 0; round < 300; ++round) {
    BracketMatcher matcher = MakeMatcher();
    std::vector<int32_t> tokens;
    for (int i = 0; i < 4; ++i) {
      const auto token = static_cast<int32_t>(rng() % kVocabulary.size());
      if (matcher.Accept(token)) tokens.push_back(token);
    }
    const std::vector<uint32_t> before = MaskOf(matcher);
    std::vector<int32_t> drafts(rng() % 4);
    for (int32_t& draft : drafts) draft = static_cast<int32_t>(rng() % kVocabulary.size());
    std::vector<uint32_t> masks((drafts.size() + 1) * words, 0xABCDu);
    ForcedTokens forced;
    const StatusOr<int32_t> rows = FillDraftMasks(matcher, drafts, masks, &forced);
    ASSERT_TRUE(rows.ok());

    BracketMatcher one_by_one = MakeMatcher();
    for (int32_t token : tokens) ASSERT_TRUE(one_by_one.Accept(token));
    for (size_t i = 0; i <= drafts.size(); ++i) {
      const std::vector<uint32_t> row(masks.begin() + i * words, masks.begin() + (i + 1) * words);
      if (i >= static_cast<size_t>(*rows)) {
        EXPECT_EQ(row, std::vector<uint32_t>(words, 0xABCDu)) << "not written";
        continue;
      }
      EXPECT_EQ(row, MaskOf(one_by_one)) << round << " " << i;
      const bool goes_on = i < drafts.size() && one_by_one.Accept(drafts[i]);
      EXPECT_EQ(goes_on, i + 1 < static_cast<size_t>(*rows));
    }
    EXPECT_EQ(MaskOf(matcher), before) << "ends where it began";
    ++(static_cast<size_t>(*rows) > drafts.size() ? all : refused);
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(all, 20);
}

// Fails at the n-th call of FillMask().
class FailingMatcher final : public TokenMatcher {
 public:
  explicit FailingMatcher(int fails_at) : calls_left_(fails_at) {}
  Status FillMask(std::span<uint32_t>) override {
    return calls_left_-- == 0 ? ResourceExhausted("too many states") : OkStatus();
  }
  bool Accept(int32_t) override {
    ++accepted_;
    return true;
  }
  void Rollback(int32_t num_tokens) override { accepted_ -= num_tokens; }
  int32_t accepted() const { return accepted_; }

 private:
  int calls_left_;
  int32_t accepted_ = 0;
};

TEST(FillDraftMasksTest, AFailureIsReturnedAndLeavesTheMatcherWhereItWas) {
  const std::vector<int32_t> drafts = {1, 2, 3};
  std::vector<uint32_t> masks(4);
  for (int at = 0; at < 4; ++at) {
    FailingMatcher matcher(at);
    ForcedTokens forced;
    EXPECT_EQ(FillDraftMasks(matcher, drafts, masks, &forced).status().code(),
              StatusCode::kResourceExhausted);
    EXPECT_EQ(matcher.accepted(), 0);
  }
}

}  // namespace
}  // namespace pagemill::sampling
