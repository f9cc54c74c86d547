// Masks in Sampler::Run().
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/sampling/draft_masks.h"
#include "cc/sampling/sampler.h"
#include "cc/sampling/testing/bracket_matcher.h"
#include "cc/sampling/testing/hash_model.h"
#include "cc/step/token_mask.h"

namespace pagemill::sampling {
namespace {

using step::RequestIndex;
using step::SamplingParams;

constexpr int32_t kVocab = 37;

std::shared_ptr<const step::Request> MakeRequest(SamplingParams params) {
  auto request = std::make_shared<step::Request>();
  request->prompt_token_ids = {1, 2, 3};
  request->sampling = std::move(params);
  return request;
}

// One thread: death tests fork.
class SamplerMasksTest : public testing::Test {
 protected:
  SamplerMasksTest()
      : pool_({.num_threads = 1}), sampler_({.max_num_seqs = 2, .vocab_size = kVocab}, &pool_) {}

  device::ThreadPool pool_;
  Sampler sampler_;
};

TEST_F(SamplerMasksTest, AFailureEndsItsRequestOnly) {
  SamplingParams p;
  p.temperature = 0.0f;
  sampler_.Start(RequestIndex(0), MakeRequest(p), {}, /*masked=*/true);
  sampler_.Start(RequestIndex(1), MakeRequest(p), {});
  std::vector<float> row(kVocab, 0.0f);
  row[8] = 1.0f;
  // Bits beyond the vocabulary are ignored.
  const std::vector<uint32_t> all = {~0u, ~0u}, nothing = {0u, ~0u << (kVocab - 32)};
  const std::vector<LogitsRow> rows = {
      {.index = RequestIndex(0), .logits = row.data(), .draft_token_id = 8, .mask = all},
      {.index = RequestIndex(0), .logits = row.data(), .draft_token_id = 8, .mask = nothing},
      {.index = RequestIndex(0), .logits = row.data(), .mask = all},
      {.index = RequestIndex(1), .logits = row.data()}};
  std::vector<RowOutput> out(rows.size());
  sampler_.Run(rows, out);
  EXPECT_EQ(out[0].token_id, 8);
  EXPECT_EQ(out[1].failure.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(out[1].token_id, -1);
  EXPECT_EQ(out[2].token_id, -1);
  EXPECT_TRUE(out[2].failure.ok());
  EXPECT_EQ(out[3].token_id, 8);
}

TEST_F(SamplerMasksTest, MaskedTokensAreNeverSampled) {
  std::mt19937 rng(4);
  for (uint64_t round = 0; round < 300; ++round) {
    SamplingParams p;
    p.temperature = round % 2 == 0 ? 0.0f : 0.9f;
    p.seed = round;
    p.top_k = static_cast<int32_t>(rng() % 6);
    p.top_p = rng() % 2 == 0 ? 1.0f : 0.7f;
    p.min_p = rng() % 2 == 0 ? 0.0f : 0.2f;
    p.presence_penalty = rng() % 2 == 0 ? 0.0f : -2.0f;
    p.logit_bias = {{static_cast<int32_t>(rng() % kVocab), 100.0f}};
    sampler_.Start(RequestIndex(0), MakeRequest(p), {}, /*masked=*/true);
    const HashModel model({.vocab_size = kVocab, .seed = round});
    const std::vector<float> logits = model.Logits({}), q(kVocab, 1.0f / kVocab);
    const std::vector<uint32_t> mask = model.Mask({});
    // A draft that the mask excludes is also rejected.
    int32_t draft = 0;
    while (draft + 1 < kVocab && step::AllowsToken(mask, draft)) ++draft;
    LogitsRow row = {.index = RequestIndex(0), .logits = logits.data(), .mask = mask};
    if (round % 3 > 0) row.draft_token_id = draft;
    if (round % 3 > 1) row.draft_probabilities = q.data();
    std::vector<RowOutput> out(1);
    sampler_.Run({&row, 1}, out);
    ASSERT_TRUE(out[0].failure.ok());
    EXPECT_TRUE(step::AllowsToken(mask, out[0].token_id)) << round;
  }
}

TEST_F(SamplerMasksTest, IfMinTokensExcludeAllThatAMaskAllowsTheMaskStands) {
  SamplingParams p;
  p.min_tokens = 3;
  p.eos_token_ids = {6};
  const std::vector<float> logits(kVocab, 0.5f);
  std::vector<uint32_t> only_end(2);
  step::AllowToken(only_end, 6);
  for (float temperature : {0.0f, 1.0f}) {
    p.temperature = temperature;
    sampler_.Start(RequestIndex(0), MakeRequest(p), {}, /*masked=*/true);
    const LogitsRow row = {.index = RequestIndex(0), .logits = logits.data(), .mask = only_end};
    std::vector<RowOutput> out(1);
    sampler_.Run({&row, 1}, out);
    EXPECT_EQ(out[0].token_id, 6);
  }
}

TEST_F(SamplerMasksTest, LogprobsAreOfTheLogitsBeforeTheMask) {
  SamplingParams p;
  p.temperature = 0.0f;
  p.logprobs = 1;
  sampler_.Start(RequestIndex(0), MakeRequest(p), {}, /*masked=*/true);
  std::vector<float> logits(kVocab, -INFINITY);
  logits[3] = std::log(0.75f);
  logits[4] = std::log(0.25f);
  std::vector<uint32_t> mask(2);
  step::AllowToken(mask, 4);
  const LogitsRow row = {.index = RequestIndex(0), .logits = logits.data(), .mask = mask};
  std::vector<RowOutput> out(1);
  sampler_.Run({&row, 1}, out);
  EXPECT_EQ(out[0].token_id, 4);
  EXPECT_NEAR(out[0].logprobs.logprob, std::log(0.25), 1e-6);
  EXPECT_EQ(out[0].logprobs.rank, 2);
  EXPECT_EQ(out[0].logprobs.top[0].first, 3);
}

TEST_F(SamplerMasksTest, AFoundTokenIsEnoughForAMaskedSlot) {
  SamplingParams p;
  sampler_.Start(RequestIndex(0), MakeRequest(p), {}, /*masked=*/true);
  EXPECT_TRUE(sampler_.NeedsOnlyToken(RequestIndex(0)));
  const auto take = [&](const ops::RowMaximum& found) {
    return sampler_.TakeFound(RequestIndex(0), found).code();
  };
  EXPECT_EQ(take({.logit = 1.0f, .column = 2}), StatusCode::kOk);
  EXPECT_EQ(take({.logit = -INFINITY, .column = -1}), StatusCode::kInvalidArgument)
      << "the mask allows none";
  EXPECT_EQ(take({.logit = INFINITY, .column = -1}), StatusCode::kInternal)
      << "the logits are not numbers";
}

using SamplerMasksDeathTest = SamplerMasksTest;

TEST_F(SamplerMasksDeathTest, MasksAreForLogitsOfMaskedSlots) {
  SamplingParams p;
  p.temperature = 0.0f;
  sampler_.Start(RequestIndex(0), MakeRequest(p), {}, /*masked=*/true);
  sampler_.Start(RequestIndex(1), MakeRequest(p), {});
  const std::vector<float> logits(kVocab, 1.0f);
  const std::vector<uint32_t> mask(2, ~0u), short_mask(1, ~0u);
  std::vector<RowOutput> out(1);
  const auto run = [&](const LogitsRow& row) { sampler_.Run({&row, 1}, out); };
  EXPECT_DEATH(run({.index = RequestIndex(1), .logits = logits.data(), .mask = mask}), "masked");
  EXPECT_DEATH(run({.index = RequestIndex(0), .logits = logits.data(), .mask = short_mask}),
               "masked");
}

// Balanced brackets with masks of FillDraftMasks(): tokens with drafts equal those without.
class BracketGeneration {
 public:
  static constexpr int32_t kEos = 4;
  BracketGeneration(Sampler* sampler, const HashModel* model, SamplingParams params)
      : sampler_(sampler),
        model_(model),
        matcher_({.vocabulary = kTexts, .eos_token_id = kEos, .max_depth = 3}) {
    params.eos_token_ids = {kEos};
    sampler_->Start(RequestIndex(0), MakeRequest(std::move(params)), {}, /*masked=*/true);
  }

  std::vector<int32_t> Run(size_t num_tokens, int32_t num_drafts) {
    for (size_t step = 0; step < num_tokens && tokens_.size() < num_tokens; ++step) {
      Step(num_drafts);
      if (testing::Test::HasFatalFailure() || tokens_.back() == kEos) break;
    }
    if (tokens_.size() > num_tokens) tokens_.resize(num_tokens);
    return tokens_;
  }
  int32_t refused() const { return refused_; }

 private:
  static inline const std::vector<std::string> kTexts = {"(", ")", "[", "x]", "</s>", "y", "()"};

  void Step(int32_t num_drafts) {
    const size_t num_rows = static_cast<size_t>(num_drafts) + 1;
    std::vector<int32_t> text = tokens_, drafts;
    std::vector<std::vector<float>> logits;
    for (size_t i = 0; i < num_rows; ++i) {
      logits.push_back(model_->Logits(text));
      if (i + 1 == num_rows) break;
      const std::vector<float> of_draft = model_->DraftLogits(text);
      drafts.push_back(static_cast<int32_t>(std::max_element(of_draft.begin(), of_draft.end()) -
                                            of_draft.begin()));
      text.push_back(drafts.back());
    }
    const size_t words = step::NumMaskWords(model_->vocab_size());
    std::vector<uint32_t> masks(num_rows * words);
    ForcedTokens forced;
    const StatusOr<int32_t> filled = FillDraftMasks(matcher_, drafts, masks, &forced);
    ASSERT_TRUE(filled.ok());
    refused_ += static_cast<size_t>(*filled) < num_rows ? 1 : 0;
    std::vector<LogitsRow> rows(num_rows);
    for (size_t i = 0; i < num_rows; ++i) {
      rows[i] = {.index = RequestIndex(0),
                 .logits = logits[i].data(),
                 .draft_token_id = i < drafts.size() ? drafts[i] : -1,
                 .mask = std::span<const uint32_t>(masks).subspan(i * words, words)};
    }
    std::vector<RowOutput> out(num_rows);
    sampler_->Run(rows, out);
    for (const RowOutput& output : out) {
      ASSERT_TRUE(output.failure.ok()) << output.failure.message();
      if (output.token_id < 0) break;
      ASSERT_TRUE(matcher_.Accept(output.token_id));
      tokens_.push_back(output.token_id);
      if (output.token_id == kEos) break;  // the rest is after the end
    }
  }

  Sampler* sampler_;
  const HashModel* model_;
  BracketMatcher matcher_;
  std::vector<int32_t> tokens_;
  int32_t refused_ = 0;
};

TEST(ConstrainedSamplingTest, TokensWithDraftsEqualThoseWithout) {
  device::ThreadPool pool({.num_threads = 1});
  Sampler sampler({.max_num_seqs = 1, .vocab_size = 7}, &pool);
  int32_t refused = 0, ended = 0;
  for (uint64_t round = 0; round < 100; ++round) {
    const HashModel model({.vocab_size = 7, .seed = round, .draft_noise = 0.5f});
    SamplingParams params;
    params.temperature = round % 2 == 0 ? 0.0f : 1.0f;
    params.seed = round;
    const auto without = BracketGeneration(&sampler, &model, params).Run(30, 0);
    BracketGeneration drafted(&sampler, &model, params);
    ASSERT_EQ(drafted.Run(30, 3), without) << round;
    refused += drafted.refused();
    ended += without.back() == BracketGeneration::kEos ? 1 : 0;
  }
  EXPECT_GT(refused, 50);
  EXPECT_GT(ended, 50);
}

}  // namespace
}  // namespace pagemill::sampling
