#include "cc/runner/mask_filler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cc/sampling/testing/bracket_matcher.h"
#include "cc/step/token_mask.h"

namespace pagemill::runner {
namespace {

using sampling::BracketMatcher;
using step::Request;
using step::RequestIndex;
using step::TokenMatcher;

const std::vector<std::string> kVocabulary = {"(", ")", "x", "</s>"};
constexpr int32_t kOpen = 0, kClose = 1, kText = 2, kEos = 3;

step::TokenMatcherFactory Brackets() {
  return []() -> StatusOr<std::unique_ptr<TokenMatcher>> {
    return std::unique_ptr<TokenMatcher>(std::make_unique<BracketMatcher>(
        sampling::BracketMatcherOptions{.vocabulary = kVocabulary, .eos_token_id = kEos}));
  };
}

Request Constrained(step::TokenMatcherFactory factory = Brackets()) {
  Request request;
  request.new_token_matcher = std::move(factory);
  return request;
}

class MaskFillerTest : public testing::Test {
 protected:
  // Fills the masks of a step with these drafts of slot `index`; the tokens that each allows.
  std::vector<std::string> Fill(int32_t index, std::vector<int32_t> drafts) {
    masks_.BeginStep();
    masks_.AddRows(RequestIndex(index), drafts);
    masks_.Fill();
    masks_.Wait();
    std::vector<std::string> allowed;
    for (size_t i = 0; i <= drafts.size(); ++i) allowed.push_back(Allowed(i));
    return allowed;
  }
  std::string Allowed(size_t row) const {
    std::string text;
    for (size_t id = 0; id < kVocabulary.size(); ++id) {
      if (step::AllowsToken(masks_.row(row), static_cast<int32_t>(id))) text += kVocabulary[id];
    }
    return text;
  }

  MaskFiller masks_{{.max_num_seqs = 4,
                     .vocab_size = static_cast<int32_t>(kVocabulary.size()),
                     .max_forced_tokens = 3}};
};

TEST_F(MaskFillerTest, NoThreadBeforeTheFirstMask) {
  masks_.Start(RequestIndex(0), Request(), {});
  EXPECT_FALSE(masks_.Holds(RequestIndex(0)));
  masks_.Start(RequestIndex(1), Constrained(), {});
  EXPECT_TRUE(masks_.Holds(RequestIndex(1)));
  masks_.BeginStep();  // a step that samples none of its tokens
  masks_.Fill();
  masks_.Wait();
  EXPECT_FALSE(masks_.has_thread());
  EXPECT_EQ(Fill(1, {}), (std::vector<std::string>{"(x</s>"}));
  EXPECT_TRUE(masks_.has_thread());
}

TEST_F(MaskFillerTest, TheMatcherFollowsObservedTokensAndNoDrafts) {
  masks_.Start(RequestIndex(2), Constrained(), std::vector{kText, kOpen});  // resumed
  EXPECT_EQ(Fill(2, {kClose, kText}), (std::vector<std::string>{"()x", "(x</s>", "(x</s>"}));
  EXPECT_EQ(Fill(2, {}), (std::vector<std::string>{"()x"}));
  masks_.Observe(RequestIndex(2), std::vector{kClose, kText});
  EXPECT_EQ(Fill(2, {}), (std::vector<std::string>{"(x</s>"}));
  // The slot holds another request.
  masks_.Observe(RequestIndex(2), std::vector{kOpen});
  masks_.Release(RequestIndex(2));
  EXPECT_FALSE(masks_.Holds(RequestIndex(2)));
  masks_.Start(RequestIndex(2), Constrained(), {});
  EXPECT_EQ(Fill(2, {}), (std::vector<std::string>{"(x</s>"}));
}

TEST_F(MaskFillerTest, RowsOfSeveralRequestsComeInTheOrderTheyWereAdded) {
  masks_.Start(RequestIndex(3), Constrained(), std::vector{kOpen});
  masks_.Start(RequestIndex(1), Constrained(), {});
  masks_.BeginStep();
  const std::vector<int32_t> drafts = {kClose};
  masks_.AddRows(RequestIndex(3), drafts);
  masks_.AddRows(RequestIndex(1), {});
  masks_.Fill();
  masks_.Wait();
  EXPECT_EQ(Allowed(0), "()x");
  EXPECT_EQ(Allowed(1), "(x</s>");
  EXPECT_EQ(Allowed(2), "(x</s>");
}

// The output is these tokens.
class FixedMatcher final : public TokenMatcher {
 public:
  explicit FixedMatcher(std::vector<int32_t> tokens) : tokens_(std::move(tokens)) {}
  Status FillMask(std::span<uint32_t> mask) override {
    std::fill(mask.begin(), mask.end(), 0);
    step::AllowToken(mask, at_ < tokens_.size() ? tokens_[at_] : kEos);
    return OkStatus();
  }
  bool Accept(int32_t token_id) override {
    if (at_ >= tokens_.size() || tokens_[at_] != token_id) return false;
    ++at_;
    return true;
  }
  void Rollback(int32_t num_tokens) override { at_ -= static_cast<size_t>(num_tokens); }
  void AppendForced(size_t most, std::vector<int32_t>* token_ids) override {
    for (size_t i = at_; i < tokens_.size() && i < at_ + most; ++i) {
      token_ids->push_back(tokens_[i]);
    }
  }

 private:
  const std::vector<int32_t> tokens_;
  size_t at_ = 0;
};

TEST_F(MaskFillerTest, KnowsWhatMustFollow) {
  const std::vector<int32_t> text = {kOpen, kText, kText, kClose, kText, kOpen};
  masks_.Start(RequestIndex(0), Constrained([&]() -> StatusOr<std::unique_ptr<TokenMatcher>> {
                 return std::unique_ptr<TokenMatcher>(std::make_unique<FixedMatcher>(text));
               }),
               {});
  const auto behind = [&](int32_t token_id) {
    const std::span<const int32_t> forced = masks_.ForcedBehind(RequestIndex(0), token_id);
    return std::vector<int32_t>(forced.begin(), forced.end());
  };
  EXPECT_EQ(Fill(0, {}), (std::vector<std::string>{"("}));
  EXPECT_EQ(behind(kOpen), (std::vector<int32_t>{kText, kText, kClose}));  // three at most
  EXPECT_TRUE(behind(kClose).empty());
  masks_.Observe(RequestIndex(0), std::vector{kOpen});
  Fill(0, {kText, kText, kClose});
  EXPECT_EQ(behind(kText), std::vector<int32_t>{kOpen});
  Fill(0, {kText, kOpen});  // a draft that the matcher refuses
  EXPECT_TRUE(behind(kText).empty());
  // Where there is a choice, nothing is known.
  masks_.Start(RequestIndex(0), Constrained(), {});
  Fill(0, {});
  EXPECT_TRUE(behind(kText).empty());
}

// Fails in every call of FillMask().
class BrokenMatcher final : public TokenMatcher {
 public:
  Status FillMask(std::span<uint32_t>) override { return Unavailable("no grammar"); }
  bool Accept(int32_t) override { return true; }
  void Rollback(int32_t) override {}
};

TEST_F(MaskFillerTest, FailuresAreOfOneRequest) {
  masks_.Start(RequestIndex(0), Constrained([]() -> StatusOr<std::unique_ptr<TokenMatcher>> {
                 return InvalidArgument("bad grammar");
               }),
               {});
  masks_.Start(RequestIndex(1), Constrained([]() -> StatusOr<std::unique_ptr<TokenMatcher>> {
                 return std::unique_ptr<TokenMatcher>(std::make_unique<BrokenMatcher>());
               }),
               {});
  masks_.Start(RequestIndex(2), Constrained(), std::vector{kClose});  // never allowed
  masks_.Start(RequestIndex(3), Constrained(), {});
  masks_.BeginStep();
  for (int32_t i = 0; i < 4; ++i) masks_.AddRows(RequestIndex(i), {});
  masks_.Fill();
  masks_.Wait();
  EXPECT_EQ(masks_.status(RequestIndex(0)), InvalidArgument("bad grammar"));
  EXPECT_EQ(masks_.status(RequestIndex(1)), Unavailable("no grammar"));
  EXPECT_EQ(masks_.status(RequestIndex(2)).code(), StatusCode::kInternal);
  EXPECT_TRUE(masks_.status(RequestIndex(3)).ok());
  EXPECT_EQ(Allowed(3), "(x</s>");
}

}  // namespace
}  // namespace pagemill::runner
