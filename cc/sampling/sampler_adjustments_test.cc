// Sampler::Adjust(): an executor that adjusts logits and draws gives the tokens of Run().
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/sample/row_adjustments.h"
#include "cc/ops/sample/row_draw.h"
#include "cc/ops/sample/sample.h"
#include "cc/sampling/sampler.h"
#include "cc/sampling/step_adjustments.h"
#include "cc/sampling/testing/hash_model.h"

namespace pagemill::sampling {
namespace {

using step::RequestIndex;
using step::SamplingParams;

constexpr int32_t kVocab = 37, kPrompt = 6, kSlot = 1;

std::shared_ptr<const step::Request> MakeRequest(const SamplingParams& params) {
  auto request = std::make_shared<step::Request>();
  for (int32_t i = 0; i < kPrompt; ++i) request->prompt_token_ids.push_back(i * i % kVocab);
  request->sampling = params;
  return request;
}

SamplingParams RandomParams(std::mt19937& rng, uint64_t seed) {
  const auto one_of = [&](std::vector<float> values) { return values[rng() % values.size()]; };
  SamplingParams p;
  p.seed = seed;
  p.max_tokens = 100;
  p.temperature = one_of({0.0f, 0.8f, 1.5f});
  p.top_p = one_of({1.0f, 0.8f});
  p.repetition_penalty = one_of({1.0f, 1.3f, 0.7f});
  p.frequency_penalty = one_of({0.0f, 0.6f, -0.4f});
  p.presence_penalty = one_of({0.0f, 0.0f, 1.2f});
  p.min_tokens = static_cast<int32_t>(rng() % 8);
  for (int i = 0; i < 9; ++i) p.stop_token_ids.push_back(static_cast<int32_t>(rng() % kVocab));
  p.eos_token_ids = {p.stop_token_ids[3], 5};
  for (int32_t id = static_cast<int32_t>(rng() % 5); id < kVocab; id += 9) {
    p.logit_bias.emplace_back(id, one_of({-3.0f, 2.0f, 4.0f}));
  }
  if (rng() % 3 == 0) p.logit_bias.clear();
  return p;
}

// What an executor does.
class Adjusting {
 public:
  void Count(const StepAdjustments& step, const std::vector<int32_t>& ids) {
    for (const int32_t slot : step.cleared_slots) counts_[slot].assign(kVocab, 0);
    for (const ops::TokenCount& count : step.counts) {
      const int32_t id =
          count.token_id >= 0 ? count.token_id : ids[static_cast<size_t>(-1 - count.token_id)];
      counts_[count.slot][static_cast<size_t>(id)] += count.amount;
    }
  }
  int32_t Choose(int32_t row, std::vector<float> logits, const StepAdjustments& step,
                 const ops::RowDraw& draw, const std::vector<int32_t>& ids) {
    for (const ops::LogitBias& bias : step.biases) {
      if (bias.row == row) logits[static_cast<size_t>(bias.token_id)] += bias.bias;
    }
    for (const ops::RowPenalties& penalties : step.penalties) {
      for (int32_t id = 0; penalties.row == row && id < kVocab; ++id) {
        const int32_t in_slot = counts_[penalties.slot][static_cast<size_t>(id)];
        float& logit = logits[static_cast<size_t>(id)];
        logit = ops::PenalizedLogit(
            logit, ops::CountedForRow(in_slot, id, ids.data(), penalties), penalties);
      }
    }
    std::vector<ops::Candidate> storage(kVocab);
    const ops::RowPasses& passes = ops::ChooseRowPasses({});
    return ops::DrawRow(passes, logits, ops::ArgMax(passes, logits), draw, storage);
  }

 private:
  std::map<int32_t, std::vector<int32_t>> counts_;
};

// One thread: death tests fork.
class SamplerAdjustmentsTest : public testing::Test {
 protected:
  bool NeedsOnlyAdjustedToken(const SamplingParams& params, bool masked = false) {
    sampler_.Start(RequestIndex(kSlot), MakeRequest(params), {}, masked);
    return sampler_.NeedsOnlyAdjustedToken(RequestIndex(kSlot));
  }

  device::ThreadPool pool_{{.num_threads = 1}};
  Sampler sampler_{{.max_num_seqs = 2, .vocab_size = kVocab}, &pool_};
};

// Steps verify up to three drafts, right and wrong ones; the host samples some of them.
TEST_F(SamplerAdjustmentsTest, AnExecutorChoosesTheTokensOfTheHost) {
  std::mt19937 rng(6);
  int32_t num_adjusted = 0, num_cleared = 0, num_penalized = 0, num_accepted = 0;
  for (uint64_t round = 0; round < 200; ++round) {
    const auto request = MakeRequest(RandomParams(rng, round));
    const HashModel model({.vocab_size = kVocab, .seed = round});
    const RequestIndex index(kSlot);
    // The host's tokens, behind the prompt.
    std::vector<int32_t> text = request->prompt_token_ids.ToVector();
    sampler_.Start(RequestIndex(0), request, {});
    for (int32_t n = 0; n < 24; ++n) {
      const std::vector<float> logits = model.Logits(text);
      const LogitsRow row = {.index = RequestIndex(0), .logits = logits.data()};
      RowOutput want;
      sampler_.Run({&row, 1}, {&want, 1});
      text.push_back(want.token_id);
    }
    sampler_.Start(index, request, {});
    Adjusting executor;
    bool penalized = false;
    for (int32_t n = 0; n < 20;) {
      const auto known = text.begin() + kPrompt + n;
      if (rng() % 6 == 0) {
        const std::vector<float> logits = model.Logits({text.begin(), known});
        const LogitsRow own = {.index = index, .logits = logits.data()};
        RowOutput same;
        sampler_.Run({&own, 1}, {&same, 1});
        ++n;
        continue;
      }
      ASSERT_TRUE(sampler_.NeedsOnlyAdjustedToken(index));
      // The step's ids: those of another request, the newest token, drafts.
      std::vector<int32_t> ids = {7, 7, 7, known[-1]};
      const auto num_drafts = static_cast<int32_t>(rng() % 4);
      for (int32_t d = 0; d < num_drafts; ++d) {
        ids.push_back(rng() % 4 == 0 ? static_cast<int32_t>(rng() % kVocab) : known[d]);
      }
      StepAdjustments step;
      for (int32_t d = 0; d <= num_drafts && !sampler_.NeedsOnlyToken(index); ++d) {
        sampler_.Adjust(index, {.row = d, .num_outputs = n + d, .input = 3 + d, .num_drafts = d},
                        &step);
      }
      executor.Count(step, ids);
      num_adjusted += !step.biases.empty() || !step.penalties.empty();
      num_cleared += static_cast<int32_t>(step.cleared_slots.size());
      penalized = penalized || !step.penalties.empty();
      for (int32_t d = 0; d <= num_drafts; ++d) {
        const std::vector<float> logits = model.Logits({text.begin(), known + d});
        const int32_t token =
            executor.Choose(d, logits, step, RowDrawOf(request->sampling, n), ids);
        ASSERT_EQ(token, known[d]) << "round " << round << ", token " << n;
        ASSERT_TRUE(sampler_.TakeFound(index, {.logit = 0.0f, .column = token}).ok());
        ++n;
        if (d == num_drafts || token != ids[static_cast<size_t>(4 + d)]) break;
        ++num_accepted;
      }
    }
    num_penalized += penalized;
  }
  EXPECT_GT(num_adjusted, 1000);
  EXPECT_GT(num_accepted, 1000);
  EXPECT_EQ(num_cleared, num_penalized) << "once, where a request starts";
}

TEST_F(SamplerAdjustmentsTest, BiasesOfTokensThatAreExcludedAreNotListed) {
  SamplingParams p;
  p.min_tokens = 2;
  p.stop_token_ids = {9, 4, 9};
  p.eos_token_ids = {4};
  p.logit_bias = {{9, 5.0f}, {8, 1.0f}};
  ASSERT_TRUE(NeedsOnlyAdjustedToken(p));
  std::vector<std::vector<int32_t>> tokens;
  for (int32_t num_outputs : {1, 2}) {
    StepAdjustments step;
    sampler_.Adjust(RequestIndex(kSlot), {.row = 7, .num_outputs = num_outputs}, &step);
    tokens.emplace_back();
    for (const ops::LogitBias& bias : step.biases) {
      EXPECT_EQ(bias.row, 7);
      EXPECT_EQ(std::isinf(bias.bias), num_outputs == 1 && bias.token_id != 8);
      tokens.back().push_back(bias.token_id);
    }
  }
  EXPECT_EQ(tokens, (std::vector<std::vector<int32_t>>{{4, 9, 8}, {8, 9}}));
}

TEST_F(SamplerAdjustmentsTest, WhatAnExecutorCannotAdjustIsTheHosts) {
  SamplingParams plain;
  plain.presence_penalty = 1.0f;
  plain.min_tokens = 4;
  plain.eos_token_ids = {5};
  EXPECT_TRUE(NeedsOnlyAdjustedToken(plain));
  EXPECT_FALSE(NeedsOnlyAdjustedToken(plain, /*masked=*/true))
      << "min_tokens do not apply if they exclude all that the mask allows";
  SamplingParams p = plain;
  for (const int32_t wanted : {0, 20, 21, SamplingParams::kAllLogprobs}) {
    p.logprobs = wanted;
    EXPECT_EQ(NeedsOnlyAdjustedToken(p), wanted == 0 || wanted == 20) << wanted;
  }
  p = plain;
  for (int32_t id = 0; id < kVocab; ++id) p.stop_token_ids.push_back(id);
  EXPECT_FALSE(NeedsOnlyAdjustedToken(p)) << "nothing would be left";
  p = plain;
  for (const float repetition : {1e-38f, 1e38f}) {
    p.repetition_penalty = repetition;
    EXPECT_FALSE(NeedsOnlyAdjustedToken(p)) << "logits may become infinite";
  }
}

TEST_F(SamplerAdjustmentsTest, RowsWithManyBiasesAreTheHosts) {
  Sampler sampler({.max_num_seqs = 1, .vocab_size = 2000}, &pool_);
  SamplingParams p;
  for (int32_t id = 0; id < 1025; ++id) p.logit_bias.emplace_back(id, 1.0f);
  sampler.Start(RequestIndex(0), MakeRequest(p), {});
  EXPECT_FALSE(sampler.NeedsOnlyAdjustedToken(RequestIndex(0)));
  p.logit_bias.pop_back();
  sampler.Start(RequestIndex(0), MakeRequest(p), {});
  EXPECT_TRUE(sampler.NeedsOnlyAdjustedToken(RequestIndex(0)));
}

TEST_F(SamplerAdjustmentsTest, BiasesOfATokenAreAdded) {
  SamplingParams p;
  p.logit_bias = {{9, 5.0f}, {8, 1.0f}, {9, -2.0f}};
  ASSERT_TRUE(NeedsOnlyAdjustedToken(p));
  StepAdjustments step;
  sampler_.Adjust(RequestIndex(kSlot), {}, &step);
  ASSERT_EQ(step.biases.size(), 2u);
  EXPECT_EQ(step.biases[0].bias, 1.0f);
  EXPECT_EQ(step.biases[1].bias, 3.0f);
}

}  // namespace
}  // namespace pagemill::sampling
