// Drafts in Sampler::Run(): results equal those without drafts.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/sampling/sampler.h"
#include "cc/sampling/testing/hash_model.h"

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

SamplingParams RandomParams(std::mt19937& rng, bool greedy) {
  SamplingParams p;
  const auto one_in = [&](uint32_t n) { return rng() % n == 0; };
  p.temperature = greedy ? 0.0f : 0.8f;
  p.seed = rng();
  if (one_in(3)) p.top_k = 5;
  if (one_in(3)) p.top_p = 0.8f;
  if (one_in(3)) p.min_p = 0.1f;
  if (one_in(3)) p.presence_penalty = 0.7f;
  if (one_in(3)) p.frequency_penalty = -0.4f;
  if (one_in(3)) p.repetition_penalty = 1.3f;
  if (one_in(3)) p.logit_bias = {{5, 0.5f}, {9, -1.0f}};
  if (one_in(3)) p.min_tokens = 4;
  if (one_in(3)) p.logprobs = 2;
  p.eos_token_ids = {0};
  p.stop_token_ids = {4, 7};
  return p;
}

class SamplerDraftsTest : public testing::Test {
 protected:
  SamplerDraftsTest()
      : pool_({.num_threads = 2}), sampler_({.max_num_seqs = 64, .vocab_size = kVocab}, &pool_) {}

  Generations::Generation Generate(const SamplingParams& params, const HashModel& model,
                                   const GenerateOptions& options) {
    Generations generations(&sampler_, &model, options);
    generations.Add(MakeRequest(params));
    generations.Run();
    sampler_.CheckIntegrity();
    return generations.all()[0];
  }

  // Tokens and log probabilities equal those without drafts, for many requests and models.
  void CompareWithAndWithout(bool greedy) {
    std::mt19937 rng(greedy ? 1 : 2);
    int32_t accepted = 0, rejected = 0;
    for (uint64_t round = 0; round < 150; ++round) {
      const float noise = round % 3 == 0 ? 4.0f : 0.3f;
      const HashModel model({.vocab_size = kVocab, .seed = round, .draft_noise = noise});
      const SamplingParams params = RandomParams(rng, greedy);
      GenerateOptions options = {.num_tokens = 24};
      options.masked = round % 4 == 3;
      options.by_maxima = round % 2 == 0;
      const Generations::Generation without = Generate(params, model, options);
      options.max_drafts = static_cast<int32_t>(1 + rng() % 5);
      options.drawn = greedy && round % 5 == 0;
      const Generations::Generation with = Generate(params, model, options);
      ASSERT_EQ(with.outputs, without.outputs) << round;
      ASSERT_EQ(with.logprobs.size(), without.logprobs.size());
      for (size_t i = 0; i < with.logprobs.size(); ++i) {
        EXPECT_EQ(with.logprobs[i].token_id, with.outputs[i]);
        EXPECT_EQ(with.logprobs[i].logprob, without.logprobs[i].logprob);
        EXPECT_EQ(with.logprobs[i].top, without.logprobs[i].top);
      }
      accepted += with.accepted;
      rejected += with.drafts - with.accepted;
    }
    EXPECT_GT(accepted, 200);
    EXPECT_GT(rejected, 200);
  }

  device::ThreadPool pool_;
  Sampler sampler_;
};

TEST_F(SamplerDraftsTest, GreedyTokensEqualThoseWithoutDrafts) { CompareWithAndWithout(true); }

TEST_F(SamplerDraftsTest, SampledTokensEqualThoseWithoutDraftsIfThoseWereNotDrawn) {
  CompareWithAndWithout(false);
}

TEST_F(SamplerDraftsTest, TokensOfDrawnDraftsDependOnNothingElseInTheBatch) {
  std::mt19937 rng(3);
  const HashModel model({.vocab_size = kVocab});
  const GenerateOptions options = {.num_tokens = 24, .max_drafts = 3, .drawn = true};
  Generations together(&sampler_, &model, options);
  std::vector<SamplingParams> params(40);
  for (SamplingParams& p : params) {
    p = RandomParams(rng, false);
    together.Add(MakeRequest(p));
  }
  together.Run();
  for (size_t i = 0; i < params.size(); ++i) {
    EXPECT_EQ(Generate(params[i], model, options).outputs, together.all()[i].outputs) << i;
  }
}

TEST_F(SamplerDraftsTest, BehindARejectedDraftThereIsNoToken) {
  SamplingParams p;
  p.temperature = 0.0f;
  p.logprobs = 0;
  sampler_.Start(RequestIndex(0), MakeRequest(p), {});
  sampler_.Start(RequestIndex(1), MakeRequest(p), {});
  std::vector<float> row(kVocab, 0.0f);
  row[8] = 1.0f;
  const std::vector<LogitsRow> rows = {
      {.index = RequestIndex(0), .logits = row.data(), .draft_token_id = 8},
      {.index = RequestIndex(0), .logits = row.data(), .draft_token_id = 9},
      {.index = RequestIndex(0), .logits = row.data(), .draft_token_id = 8},
      {.index = RequestIndex(0), .logits = row.data()},
      {.index = RequestIndex(1), .logits = row.data(), .draft_token_id = 8},
      {.index = RequestIndex(1), .logits = row.data()}};
  std::vector<RowOutput> out(rows.size());
  sampler_.Run(rows, out);
  std::vector<int32_t> tokens;
  for (const RowOutput& output : out) {
    tokens.push_back(output.token_id);
    EXPECT_EQ(output.has_logprobs, output.token_id >= 0);
  }
  EXPECT_EQ(tokens, (std::vector<int32_t>{8, 8, -1, -1, 8, 8}));
}

}  // namespace
}  // namespace pagemill::sampling
