// Native runner and an executor of several steps in flight, which changes rows of logits and scores
// tokens: penalties and biases, token masks, log probabilities.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/runner/testing/steps_in_flight.h"
#include "cc/sampling/sampler.h"
#include "cc/step/step_result.h"
#include "cc/step/token_mask.h"
#include "cc/step/token_matcher.h"

namespace pagemill::runner {
namespace {

// One whose logits the executor adjusts.
std::shared_ptr<step::Request> MakeAdjustedRequest(std::vector<int32_t> prompt,
                                                   float temperature) {
  auto request = MakeRequest(std::move(prompt), temperature);
  request->sampling.repetition_penalty = 2.0f;
  request->sampling.frequency_penalty = 0.7f;
  request->sampling.logit_bias = {{4, 1.0f}};
  request->sampling.min_tokens = 2;
  request->sampling.eos_token_ids = {7};
  return request;
}

// Penalties count tokens that the host does not know yet.
TEST_F(StepsInFlightTest, AnAdjustedStepBeginsBeforeTheOneBeforeItIsOver) {
  const auto greedy = MakeAdjustedRequest({1, 2, 1}, 0), drawn = MakeAdjustedRequest({3}, 1.5f);
  const auto plain = MakeRequest({4});
  constexpr size_t kSteps = 6;
  const std::vector<int32_t> expected[] = {Draw(*greedy, kSteps), Draw(*drawn, kSteps),
                                           Continue({4}, kSteps)};
  EXPECT_NE(expected[0], Continue({1, 2, 1}, kSteps));
  ASSERT_TRUE(Begin({Start(0, greedy), Start(1, drawn), Start(2, plain)}).ok());
  for (size_t i = 0; i < kSteps; ++i) {
    const auto n = static_cast<int32_t>(i);
    if (i + 1 < kSteps) {
      ASSERT_TRUE(Begin({GoOn(2, 1 + n), GoOn(0, 3 + n), GoOn(1, 1 + n)}).ok());
    }
    const StatusOr<step::StepResult> result = runner_->Collect();
    ASSERT_TRUE(result.ok());
    for (const step::RequestResult& request : result->results) {
      const auto slot = static_cast<size_t>(request.index.value());
      EXPECT_EQ(request.sampled_token_ids, std::vector{expected[slot][i]}) << slot << ", " << i;
    }
  }
  EXPECT_EQ(executor_.num_tokens_of_rows, 3 * static_cast<int64_t>(kSteps - 1));
  EXPECT_EQ(executor_.num_cleared, 2) << "each once, at its start";
  // Two rows with penalties and a bias each, and what min_tokens exclude in two steps.
  EXPECT_EQ(executor_.num_adjusted, 2 * (2 * static_cast<int64_t>(kSteps) + 2));
  runner_->CheckIntegrity();
}

// Behind steps that the host samples, the executor counts what it lacks; a request that takes a
// slot does not inherit what was counted there.
TEST_F(StepsInFlightTest, AdjustedRequestsGoOnBehindStepsThatTheHostSamples) {
  const auto adjusted = MakeAdjustedRequest({1, 2}, 1.0f), other = MakeAdjustedRequest({5}, 1.0f);
  const std::vector<int32_t> expected = Draw(*adjusted, 6);
  const auto result_of = [&](size_t i) {
    const StatusOr<step::StepResult> result = runner_->Collect();
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->results[0].sampled_token_ids, std::vector{expected[i]}) << i;
  };
  ASSERT_TRUE(Begin({Start(0, adjusted)}).ok());
  ASSERT_TRUE(Begin({GoOn(0, 2), Start(1, MakeHostRequest({3}))}).ok());
  ASSERT_TRUE(Begin({GoOn(0, 3), GoOn(1, 1)}).ok());
  ASSERT_TRUE(Begin({GoOn(0, 4)}, {RequestIndex(1)}).ok());
  ASSERT_TRUE(Begin({GoOn(0, 5), Start(1, other)}).ok());
  ASSERT_TRUE(Begin({GoOn(0, 6), GoOn(1, 1)}).ok());
  for (size_t i = 0; i < 4; ++i) result_of(i);
  StatusOr<step::StepResult> result = runner_->Collect();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->results[0].sampled_token_ids, std::vector{expected[4]});
  EXPECT_EQ(result->results[1].sampled_token_ids, Draw(*other, 1));
  ASSERT_TRUE(Begin({Start(0, other)}, {RequestIndex(0)}).ok());
  result = runner_->Collect();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->results[1].sampled_token_ids, std::vector{Draw(*other, 2).back()});
  EXPECT_EQ(runner_->Collect()->results[0].sampled_token_ids, Draw(*other, 1));
  EXPECT_EQ(executor_.num_cleared, 3) << "where a request starts";
}

// Allows tokens that are even or odd, in turns, beginning with even ones; `last` allows nothing
// behind so many.
class InTurns final : public step::TokenMatcher {
 public:
  explicit InTurns(int32_t last) : last_(last) {}
  Status FillMask(std::span<uint32_t> mask) override {
    const int32_t parity = num_accepted_ % 2;
    for (uint32_t& word : mask) word = 0;
    for (int32_t t = parity; num_accepted_ < last_ && t < kVocab; t += 2) step::AllowToken(mask, t);
    return OkStatus();
  }
  bool Accept(int32_t token_id) override {
    if (token_id % 2 != num_accepted_ % 2) return false;
    ++num_accepted_;
    return true;
  }
  void Rollback(int32_t num_tokens) override { num_accepted_ -= num_tokens; }

 private:
  const int32_t last_;
  int32_t num_accepted_ = 0;
};

std::shared_ptr<step::Request> MakeMaskedRequest(std::vector<int32_t> prompt, float temperature,
                                                 int32_t last = 100) {
  auto request = MakeRequest(std::move(prompt), temperature);
  request->new_token_matcher = [last] {
    return StatusOr<std::unique_ptr<step::TokenMatcher>>(std::make_unique<InTurns>(last));
  };
  return request;
}

void ExpectEqual(const step::TokenLogprobs& got, const step::TokenLogprobs& expected) {
  EXPECT_EQ(got.token_id, expected.token_id);
  EXPECT_EQ(got.logprob, expected.logprob);
  EXPECT_EQ(got.rank, expected.rank);
  EXPECT_EQ(got.top, expected.top);
}

// Log probabilities are those of logits that nothing has changed, and those of a host, also of a
// slot whose request wanted none before.
TEST_F(StepsInFlightTest, AScoredStepBeginsBeforeTheOneBeforeItIsOver) {
  const auto adjusted = MakeAdjustedRequest({1, 2, 1}, 1.5f), greedy = MakeRequest({3});
  adjusted->sampling.logprobs = 3;
  greedy->sampling.logprobs = 0;
  constexpr size_t kSteps = 5;
  const std::vector<sampling::RowOutput> expected[] = {
      Sample(*adjusted, kSteps), Sample(*greedy, kSteps), Sample(*MakeRequest({4}), kSteps)};
  ASSERT_TRUE(
      Begin({Start(0, adjusted), Start(1, greedy), Start(2, MakeRequest({4}))}).ok());
  for (size_t i = 0; i < kSteps; ++i) {
    const auto n = static_cast<int32_t>(i);
    if (i + 1 < kSteps) {
      ASSERT_TRUE(Begin({GoOn(2, 1 + n), GoOn(1, 1 + n), GoOn(0, 3 + n)}).ok());
    }
    const StatusOr<step::StepResult> result = runner_->Collect();
    ASSERT_TRUE(result.ok());
    for (const step::RequestResult& request : result->results) {
      const auto slot = static_cast<size_t>(request.index.value());
      EXPECT_EQ(request.sampled_token_ids, std::vector{expected[slot][i].token_id});
      ASSERT_EQ(request.logprobs.size(), slot < 2 ? 1u : 0u);
      if (slot < 2) ExpectEqual(request.logprobs[0], expected[slot][i].logprobs);
    }
  }
  EXPECT_EQ(executor_.num_tokens_of_rows, 3 * static_cast<int64_t>(kSteps - 1));
  EXPECT_EQ(executor_.num_scored, 2 * static_cast<int64_t>(kSteps));
}

// What an executor does not report: processed or raw logits, and chosen tokens.
TEST_F(StepsInFlightTest, OtherLogProbabilitiesAreTheHosts) {
  const auto processed = MakeAdjustedRequest({1, 2, 1}, 1.5f), chosen = MakeRequest({3});
  processed->sampling.logprobs = 3;
  processed->sampling.logprobs_mode = step::SamplingParams::kProcessedLogprobs;
  chosen->sampling.logprobs = 0;
  chosen->sampling.logprob_token_ids = {7, 2};
  const std::vector<sampling::RowOutput> expected[] = {Sample(*processed, 2), Sample(*chosen, 2)};
  for (int32_t slot = 0; slot < 2; ++slot) {
    const auto& request = slot == 0 ? processed : chosen;
    const auto size = static_cast<int32_t>(request->prompt_token_ids.size());
    for (int32_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(Begin({i == 0 ? Start(slot, request) : GoOn(slot, size)}).ok());
      const StatusOr<step::StepResult> result = runner_->Collect();
      ASSERT_TRUE(result.ok());
      const sampling::RowOutput& wanted = expected[slot][static_cast<size_t>(i)];
      EXPECT_EQ(result->results[0].sampled_token_ids, std::vector{wanted.token_id});
      ExpectEqual(result->results[0].logprobs.at(0), wanted.logprobs);
    }
  }
  EXPECT_EQ(executor_.num_scored, 0);
}

TEST_F(StepsInFlightTest, LogitsOfPromptsAreTheHosts) {
  const std::vector<int32_t> prompt = {5, 6};
  const auto scored = MakeRequest(prompt, 1.0f);
  scored->sampling.prompt_logprobs = 0;
  scored->sampling.logprobs_mode = step::SamplingParams::kRawLogits;
  ScheduledRequest first = Start(0, scored);
  first.prompt_logprobs = true;
  ASSERT_TRUE(Begin({first}).ok());
  const StatusOr<step::StepResult> result = runner_->Collect();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(executor_.num_scored, 0);
  const std::vector<float> logits = model_.Logits({prompt.data(), 1});
  EXPECT_EQ(result->results[0].prompt_logprobs.at(0).logprob, logits[6]);
}

// A prompt in two parts, beside a request that goes on.
TEST_F(StepsInFlightTest, PromptsAreScoredInStepsThatTheHostDoesNotSample) {
  const std::vector<int32_t> prompt = {5, 6, 2, 7};
  const auto scored = MakeRequest(prompt, 1.0f);
  scored->sampling.prompt_logprobs = 2;
  scored->sampling.logprobs = 1;
  ScheduledRequest first = Start(0, scored);
  first.token_ids = {5, 6};
  first.prompt_logprobs = true;
  first.sample = false;
  ScheduledRequest second = GoOn(0, 2);
  second.token_ids = {2, 7};
  second.prompt_logprobs = true;
  ASSERT_TRUE(Begin({first, Start(1, MakeRequest({3}))}).ok());
  ASSERT_TRUE(Begin({GoOn(1, 1), second}).ok());
  EXPECT_EQ(trace_, "enqueue sample enqueue sample ");
  EXPECT_EQ(executor_.num_tokens_of_rows, 1);
  std::vector<step::TokenLogprobs> of_prompt;
  for (const size_t scored_in_step : {2u, 1u}) {
    const StatusOr<step::StepResult> result = runner_->Collect();
    ASSERT_TRUE(result.ok());
    const step::RequestResult& request = result->results[scored_in_step == 2u ? 0 : 1];
    EXPECT_EQ(request.prompt_logprobs.size(), scored_in_step);
    of_prompt.insert(of_prompt.end(), request.prompt_logprobs.begin(),
                     request.prompt_logprobs.end());
    EXPECT_EQ(request.sampled_token_ids.empty(), scored_in_step == 2u);
    if (scored_in_step == 2u) continue;
    const sampling::RowOutput sampled = Sample(*scored, 1)[0];
    EXPECT_EQ(request.sampled_token_ids, std::vector{sampled.token_id});
    ASSERT_EQ(request.logprobs.size(), 1u);
    ExpectEqual(request.logprobs[0], sampled.logprobs);
    EXPECT_EQ(result->results[0].sampled_token_ids, std::vector{Continue({3}, 2)[1]});
  }
  // The token behind the prompt is that of its last row.
  ASSERT_TRUE(Begin({GoOn(0, 4)}).ok());
  EXPECT_EQ(runner_->Collect()->results[0].sampled_token_ids,
            std::vector{Draw(*scored, 2)[1]});
  ASSERT_EQ(of_prompt.size(), prompt.size() - 1);
  for (size_t i = 0; i < of_prompt.size(); ++i) {
    const std::vector<float> logits = model_.Logits({prompt.data(), i + 1});
    sampling::Sampler sampler(
        {.max_num_seqs = 1, .vocab_size = kVocab, .capabilities = device::DetectCapabilities()},
        &pool_);
    sampler.Start(RequestIndex(0), scored, {});
    const sampling::LogitsRow row = {
        .index = RequestIndex(0), .logits = logits.data(), .prompt_token_id = prompt[i + 1]};
    sampling::RowOutput output;
    sampler.Run({&row, 1}, {&output, 1});
    ExpectEqual(of_prompt[i], output.logprobs);
  }
}

TEST_F(StepsInFlightTest, ScoresThatAreNotNumbersFailTheirRequest) {
  const auto scored = MakeRequest({1, 2});
  scored->sampling.logprobs = 0;
  const auto other = MakeRequest({3});
  other->sampling.logprobs = 2;
  executor_.row_without_score = 0;
  ASSERT_TRUE(Begin({Start(0, scored), Start(1, other)}).ok());
  const StatusOr<step::StepResult> result = runner_->Collect();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->results[0].failure.code(), StatusCode::kInternal);
  EXPECT_TRUE(result->results[0].logprobs.empty());
  EXPECT_EQ(result->results[1].sampled_token_ids, Continue({3}, 1));
  ExpectEqual(result->results[1].logprobs.at(0), Sample(*other, 1)[0].logprobs);
}

// A request that was released while its step was in flight has no part in the scores of others.
TEST_F(StepsInFlightTest, ScoresAreThoseOfRequestsThatStillHoldTheirSlots) {
  const auto released = MakeRequest({1, 2}), stays = MakeRequest({3}), next = MakeRequest({4});
  released->sampling.logprobs = 1;
  stays->sampling.logprobs = 3;
  next->sampling.logprobs = 0;
  ASSERT_TRUE(Begin({Start(0, released), Start(1, stays)}).ok());
  ASSERT_TRUE(Begin({Start(0, next), GoOn(1, 1)}, {RequestIndex(0)}).ok());
  StatusOr<step::StepResult> result = runner_->Collect();
  ASSERT_TRUE(result.ok());
  const std::vector<sampling::RowOutput> expected = Sample(*stays, 2);
  EXPECT_TRUE(result->results[0].logprobs.empty());
  ExpectEqual(result->results[1].logprobs.at(0), expected[0].logprobs);
  result = runner_->Collect();
  ASSERT_TRUE(result.ok());
  ExpectEqual(result->results[0].logprobs.at(0), Sample(*next, 1)[0].logprobs);
  ExpectEqual(result->results[1].logprobs.at(0), expected[1].logprobs);
}

// Masks want the token before, so a step is collected before the next is sampled: but behind the
// beginning of its forward pass.
TEST_F(StepsInFlightTest, AMaskedStepBeginsBeforeTheOneBeforeItIsOver) {
  ASSERT_TRUE(Begin({Start(0, MakeMaskedRequest({1, 2}, 0)), Start(1, MakeMaskedRequest({3}, 2.0f)),
                     Start(2, MakeRequest({4}))})
                  .ok());
  for (int32_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(Begin({GoOn(0, 2 + i), GoOn(1, 1 + i), GoOn(2, 1 + i)}).ok());
  }
  EXPECT_EQ(trace_,
            "enqueue sample enqueue collect sample enqueue collect sample enqueue collect sample ");
  EXPECT_EQ(executor_.num_tokens_of_rows, 9);
  EXPECT_EQ(executor_.num_masked, 8);
  std::vector<int32_t> text = {1, 2};
  for (int32_t i = 0; i < 4; ++i) {
    const StatusOr<step::StepResult> result = runner_->Collect();
    ASSERT_TRUE(result.ok());
    std::vector<float> logits = model_.Logits(text);
    for (size_t t = 0; t < logits.size(); ++t) {
      if (static_cast<int32_t>(t) % 2 != i % 2) logits[t] = -1e9f;
    }
    text.push_back(
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    EXPECT_EQ(result->results[0].sampled_token_ids, std::vector{text.back()});
    ASSERT_EQ(result->results[1].sampled_token_ids.size(), 1u);
    EXPECT_EQ(result->results[1].sampled_token_ids[0] % 2, i % 2);
    EXPECT_EQ(result->results[2].sampled_token_ids,
              std::vector{Continue({4}, 4)[static_cast<size_t>(i)]});
  }
}

TEST_F(StepsInFlightTest, AMaskThatAllowsNothingFailsItsRequest) {
  const auto masked = MakeMaskedRequest({1, 2}, 1.0f, /*last=*/1);
  ASSERT_TRUE(Begin({Start(0, masked), Start(1, MakeRequest({3}))}).ok());
  ASSERT_TRUE(Begin({GoOn(0, 2), GoOn(1, 1)}).ok());
  EXPECT_TRUE(runner_->Collect()->results[0].failure.ok());
  const StatusOr<step::StepResult> result = runner_->Collect();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->results[0].failure.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(result->results[1].sampled_token_ids, std::vector{Continue({3}, 2)[1]});
}

TEST_F(StepsInFlightTest, ASlotCountsAnewBehindAStepWhoseTokensCouldNotBeDrawn) {
  const auto lost = MakeAdjustedRequest({1, 2}, 1.0f), next = MakeAdjustedRequest({3}, 1.0f);
  const std::vector<int32_t> expected = Draw(*next, 2);
  ASSERT_TRUE(Begin({Start(0, lost)}).ok());
  next_sample_ = Internal("lost");
  ASSERT_TRUE(Begin({GoOn(0, 2)}).ok());
  ASSERT_TRUE(Begin({Start(0, next)}, {RequestIndex(0)}).ok());
  ASSERT_TRUE(Begin({GoOn(0, 1)}).ok());
  EXPECT_TRUE(runner_->Collect().ok());
  EXPECT_EQ(runner_->Collect().status().message(), "lost");
  for (const int32_t token : expected) {
    EXPECT_EQ(runner_->Collect()->results[0].sampled_token_ids, std::vector{token});
  }
}

}  // namespace
}  // namespace pagemill::runner
