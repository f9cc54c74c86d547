#include "cc/runner/mask_filler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
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

  MaskFiller masks_{4, static_cast<int32_t>(kVocabulary.size())};
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
